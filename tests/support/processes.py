"""Processes of kproxy that say on stderr how far they are."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Reads what it says on stderr until the text has come."""
    assert process.stderr is not None
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, f"it ended without saying {text!r}:\n{said}"
        said += line


@contextmanager
def started(process: subprocess.Popen[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    """The process, once it has said `ready`; ended by SIGTERM, with exit code 0."""
    try:
        read_until(process, ready)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
