"""The script that reads a node, `collect.sh`; `stream` reads what it prints where there is no directory to write to."""

from __future__ import annotations

import shlex
from importlib.resources import files
from typing import Final

SECONDS: Final = 120.0
"""How long a node may take: longer than the script lets itself take."""
MAX_OCTETS: Final = 256 << 20
"""Of what it prints there."""


def script() -> str:
    """The POSIX shell script: `sh collect.sh [NODE [DIRECTORY]]`."""
    return files("kproxy.cluster.snapshot").joinpath("collect.sh").read_text(encoding="utf-8")


def stream_script(boundary: str) -> str:
    """The same to be given to `sh -c`: it prints all files, between lines that begin with `boundary`."""
    return f"KPROXY_BOUNDARY={shlex.quote(boundary)}\n{script()}"
