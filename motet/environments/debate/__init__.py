"""Debate on questions with gold answers: everyone answers, hears the others, and answers again.

game.py        the environment and its options
questions.py   what is asked: rows of GSM8K, TinyGSM, ANLI or of mathematics
judging.py     what an answer is, and whether it is right; what the answers of several come to
prompts.py     what agents are told, and who hears whom
quoting.py     another's words, so that they can pose as nobody else's
"""
