"""A process that stops itself as soon as it has begun to write something: who watches from outside may look too late."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "shutil.rmtree")


def halt_once(folder: str, pattern: str) -> None:
    """From now on this process looks whenever it touches a file, and sends itself SIGSTOP once `pattern` is found in `folder`."""
    own, looking, halted = os.getpid(), False, False

    def look(event: str, about: tuple[Any, ...]) -> None:
        nonlocal looking, halted
        if looking or halted or event not in EVENTS or os.getpid() != own:
            return
        looking = True  # to look is an event too
        halted = any(Path(folder).glob(pattern))
        looking = False
        if halted:
            os.kill(own, signal.SIGSTOP)

    sys.addaudithook(look)
