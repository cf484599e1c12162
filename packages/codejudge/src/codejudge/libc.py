"""The C library, opened once.

The functions that every child calls are looked up before the server forks, so that no child spends
time on it.
"""

import ctypes
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
_LOOKED_UP = (LIBC.prctl, LIBC.syscall, LIBC.capset) if sys.platform == "linux" else ()
