"""Debate on questions with gold answers: agents answer, read other answers, and answer again.

game.py        the environment and its options
questions.py   reads rows of GSM8K, TinyGSM, ANLI and mathematics data sets as questions
judging.py     extracts answers and compares them with the gold answer; majority and agreement
prompts.py     the prompts, and which answers each agent reads
quoting.py     quotes other agents' text so that it cannot imitate another speaker
verified.py    the protocol of a verifier that scores answers
"""
