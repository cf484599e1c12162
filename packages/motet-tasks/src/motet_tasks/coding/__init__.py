"""The coding environments.

    generation.py     one function and the helper functions that it calls
    completion.py     the methods of one class
    bug_fix.py        a review of a faulty function and its repair
    bug_fix_tiny.py   an embedded version of bug_fix, independent of the others

turns.py contains what the first three share: the turns, the grading tests and the feedback.
problems.py, classes.py and bugs.py read their tasks from data sets.
"""
