"""Where programs are found: in PATH, and in the directories that a PATH often lacks.

A module of its own, with few imports: the CNI plugin starts for every pod.
"""

from __future__ import annotations

import os
import shutil
from typing import Final

SBIN: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where programs for administrators are. A user's PATH often lacks these, and so does a container runtime's."""


def search_path() -> str:
    """Where programs are looked for: PATH, and then the directories of `SBIN` that it lacks."""
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*known, *(directory for directory in SBIN if directory not in known)])


def find_program(name: str) -> str | None:
    """The path of a program, None if it is not there."""
    return shutil.which(name, path=search_path())


def not_found(name: str) -> str:
    """Says that a program is not there."""
    return f"{name} is not in PATH, nor in {', '.join(SBIN)}"
