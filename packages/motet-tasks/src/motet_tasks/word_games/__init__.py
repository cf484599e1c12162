"""Games in plain English for any instruction-tuned model.

taboo.py     one agent describes a word that it may not say, the other guesses it
telegram.py  two agents find each other's word, in a few words
words.py     common nouns, and which of them are held out
"""
