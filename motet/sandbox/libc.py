"""The C library, opened once. What every child calls is looked up before the server forks: later it would cost each of them."""

import ctypes
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
_LOOKED_UP = (LIBC.prctl, LIBC.syscall, LIBC.capset) if sys.platform == "linux" else ()
