"""Function calling.

game.py     agents call functions for one request, in parallel
reading.py  from an answer to calls
"""
