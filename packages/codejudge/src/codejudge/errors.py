"""What the sandbox raises. A program that fails is a result, not an error."""


class SandboxError(Exception):
    """The sandbox cannot be used as asked: a limit out of range, a package that is missing, or a
    machine with less protection than was asked for. The message says how to fix it."""


class SandboxFault(Exception):
    """The sandbox itself failed twice. That says nothing about the program."""
