"""The tool of the solver."""


def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One number.
        b: The other.
    """
    return a + b
