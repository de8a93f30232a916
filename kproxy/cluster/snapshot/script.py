"""The script that reads a node, `collect.sh`, and what it prints where there is no directory to write to."""

from __future__ import annotations

import shlex
from importlib.resources import files
from typing import Final

from kproxy.cluster.snapshot.layout import HOST_FILES, MAX_FILE
from kproxy.errors import InputError

SECONDS: Final = 120.0
"""How long a node may take: longer than the script lets itself take."""


def script() -> str:
    """The POSIX shell script: `sh collect.sh [NODE [DIRECTORY]]`."""
    return files("kproxy.cluster.snapshot").joinpath("collect.sh").read_text(encoding="utf-8")


def stream_script(boundary: str) -> str:
    """The same to be given to `sh -c`: it prints all files, between lines that begin with `boundary`."""
    return f"KPROXY_BOUNDARY={shlex.quote(boundary)}\n{script()}"


def parse_stream(data: bytes, boundary: str) -> dict[str, bytes]:
    """The files of what `stream_script` printed, by their names in a node's directory.

    Raises:
        InputError: it is something else, or ends in the middle.
    """
    mark = f"{boundary} ".encode()
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        line, _, _ = data[at : at + 4096].partition(b"\n")
        if not line.startswith(mark):
            raise InputError(f"the script's own lines expected, not {line[:80].decode(errors='replace')!r}")
        name = line[len(mark) :].decode(errors="replace")
        begin = at + len(line) + 1
        end = data.find(b"\n" + mark, begin)
        if end < 0:
            raise InputError(f"its output ends in the middle of {name}")
        if name not in HOST_FILES:
            raise InputError(f"the script writes no {name[:80]!r}")
        last, _, _ = data[end + 1 : end + 4096].partition(b"\n")
        if last.endswith(b" end") and end - begin <= MAX_FILE:
            found[name] = data[begin:end]
        at = end + 2 + len(last)
    return found
