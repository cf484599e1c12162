"""Travel plans.

game.py     two agents plan a trip, each its part of every day
trips.py    a row as a trip: its route, its constraints, and what each day needs
catalog.py  the places and journeys that a row names
actions.py  from an answer to assignments of the plan
"""
