"""The coding games. generation.py: a function and the helpers it calls. completion.py: the methods of a class. bug_fix.py: a
review and a repair. bug_fix_tiny.py: the same as an embedded game, on its own.

turns.py is what the first three share from turn to turn. What a task is stands in problems.py, classes.py and bugs.py.
"""
