"""What sampling and balancing do unless told otherwise: once for the commands and for Python. Nothing heavy here."""

TEMPERATURES = (0.7, 1.0, 1.3)
GAMES = 4
"""Per task and temperature."""
EACH = 10
"""Right answers to a question, and wrong ones."""
TRIES = 4
"""How often a writer is asked for one that is missing."""
WRITING_TEMPERATURE = 1.0
