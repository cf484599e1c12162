"""Defaults of sampling and balancing, shared by the commands and the Python API.

This module imports nothing heavy.
"""

TEMPERATURES = (0.7, 1.0, 1.3)
GAMES = 4
"""Games per task and temperature."""
EACH = 10
"""Number of right answers per question, and number of wrong ones."""
TRIES = 4
"""Maximum number of requests to a writer for one missing answer."""
WRITING_TEMPERATURE = 1.0
