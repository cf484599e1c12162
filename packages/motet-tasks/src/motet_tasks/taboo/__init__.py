"""Taboo: one agent describes a word that it may not say, the other guesses it."""
