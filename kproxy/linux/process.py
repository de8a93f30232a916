"""Child processes, started inside a namespace and never waited for without end.

They read and write files in memory (memfd_create(2)) rather than pipes: megabytes of rules would go through a pipe in
pieces of 64 KiB, with the child waiting for this process, and its other threads, at each.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import IO, Final

import msgspec

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import not_found, search_path

ERRORS: Final = "surrogateescape"
"""The kernel keeps comments as bytes, in whatever encoding; they go back as they came."""


class Finished(msgspec.Struct, frozen=True):
    """How a child process ended: its exit code, stdout and stderr."""

    code: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """Its stderr on one line."""
        return one_line(self.stderr) or f"exit code {self.code}, without a message"


def child_environment() -> dict[str, str]:
    """What programs are started with: their own messages, in English."""
    return {**os.environ, "LC_ALL": "C", "PATH": search_path()}


def took_too_long(program: str, timeout: float) -> ToolFailedError:
    """The error about a program that was stopped."""
    return ToolFailedError(f"{program} had not ended after {timeout:.0f} s and was stopped")


def one_line(stderr: str) -> str:
    """A program's stderr on one line, without iptables' remarks on the other variant's tables."""
    return "; ".join(line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("# Warning"))


def run(namespace: Namespace, command: Sequence[str], *, text: str = "", timeout: float) -> Finished:
    """Runs a program inside a namespace.

    It is in a process group of its own, so that Ctrl-C on a terminal does not end it in the middle of what it does.

    Args:
        text: its standard input.
        timeout: seconds after which it is killed.

    Raises:
        ToolMissingError: it is not there.
        ToolFailedError: it took longer than `timeout`.
    """
    with open(os.memfd_create("stdin"), "w+b") as given, open(os.memfd_create("stdout"), "w+b") as output:
        given.write(text.encode(errors=ERRORS))
        given.seek(0)
        done = _run_to_its_end(namespace, command, given, output, timeout)
        output.seek(0)
        printed = output.read()
    return Finished(done.returncode, printed.decode(errors=ERRORS), done.stderr.decode(errors=ERRORS))


def _run_to_its_end(
    namespace: Namespace,
    command: Sequence[str],
    given: IO[bytes],
    output: IO[bytes],
    timeout: float,
) -> subprocess.CompletedProcess[bytes]:
    def start() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            command,
            stdin=given,
            stdout=output,
            stderr=subprocess.PIPE,
            env=child_environment(),
            timeout=timeout,
            check=False,
            process_group=0,
        )

    try:
        return namespace.call(start)
    except FileNotFoundError as error:
        raise ToolMissingError(not_found(command[0])) from error
    except PermissionError as error:
        raise ToolMissingError(f"{command[0]} cannot be executed: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise took_too_long(command[0], timeout) from error
    except OSError as error:
        raise ToolMissingError(f"{command[0]} cannot be started: {error.strerror}") from error
