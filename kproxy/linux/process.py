"""Child processes, started inside a namespace and never waited for without end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence

import msgspec

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace


class Finished(msgspec.Struct, frozen=True):
    """How a child process ended: its exit code, stdout and stderr."""

    code: int
    output: str
    complaint: str


def find_program(name: str) -> str | None:
    """The path of a program in PATH, None if it is not there."""
    return shutil.which(name)


def not_found(name: str) -> str:
    """Says that a program is not there, and whether it is where PATH does not look."""
    for directory in ("/usr/sbin", "/sbin"):
        if os.access(os.path.join(directory, name), os.X_OK):
            return f"{name} is in {directory}, which is not in PATH"
    return f"{name} is not in PATH"


def run(namespace: Namespace, command: Sequence[str], *, text: str = "", timeout: float) -> Finished:
    """Runs a program inside a namespace.

    Args:
        text: its standard input.
        timeout: seconds after which it is killed.

    Raises:
        ToolMissingError: it is not there.
        ToolFailedError: it took longer than `timeout`.
    """
    environment = {**os.environ, "LC_ALL": "C"}

    def start() -> subprocess.CompletedProcess[bytes]:
        # bufsize and text mode would copy megabytes of rules once more.
        return subprocess.run(
            command, input=text.encode(), capture_output=True, env=environment, timeout=timeout, check=False
        )

    try:
        done = namespace.call(start)
    except FileNotFoundError as error:
        raise ToolMissingError(not_found(command[0])) from error
    except PermissionError as error:
        raise ToolMissingError(f"{command[0]} cannot be executed: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ToolFailedError(f"{command[0]} had not ended after {timeout:.0f} s and was stopped") from error
    except OSError as error:
        raise ToolMissingError(f"{command[0]} cannot be started: {error.strerror}") from error
    return Finished(
        done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode(errors="surrogateescape")
    )
