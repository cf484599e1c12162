"""Temporary folders that a later start removes if their process was killed.

They are those of codejudge. This module is the one place where Motet, and every package that runs
no programs, gets them.
"""

from codejudge.temporary import folder as folder
