"""Child processes, started inside a namespace and never waited for without end.

What `run` starts reads and writes files in memory (memfd_create(2)) rather than pipes: megabytes of rules would go
through a pipe in pieces of 64 KiB, with the child waiting for this process, and its other threads, at each. `stream` is
for output that is too large for that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kproxy.linux.errors import ToolFailedError, ToolMissingError
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import not_found, search_path

_PIECE: Final = 1 << 16
_WRITTEN: Final = 1 << 22  # characters
_KEPT_ERRORS: Final = 4096
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
        for start in range(0, len(text), _WRITTEN):
            given.write(text[start : start + _WRITTEN].encode(errors=ERRORS))
        given.seek(0)
        try:
            with _startable(command[0]):
                done: subprocess.CompletedProcess[bytes] = namespace.call(
                    subprocess.run,
                    command,
                    stdin=given,
                    stdout=output,
                    stderr=subprocess.PIPE,
                    env=child_environment(),
                    timeout=timeout,
                    check=False,
                    process_group=0,
                )
        except subprocess.TimeoutExpired as error:
            raise took_too_long(command[0], timeout) from error
        output.seek(0)
        printed = output.read()
    return Finished(done.returncode, printed.decode(errors=ERRORS), done.stderr.decode(errors=ERRORS))


def stream(
    namespace: Namespace,
    command: Sequence[str],
    *,
    timeout: float,
    max_octets: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[bytes]:
    """Runs a program inside a namespace and gives what it prints as it comes, for output that may be large.

    The namespace is free for others meanwhile. A reader that ends earlier ends the program.

    Args:
        timeout: seconds after which it is killed.
        max_octets: of output, after which it is.
        environment: variables beside this process's.

    Raises:
        ToolMissingError: it is not there.
        ToolFailedError: it failed, took longer than `timeout`, or printed more than `max_octets`.
    """
    deadline = time.monotonic() + timeout
    with open(os.memfd_create("stderr"), "w+b") as errors:
        with _startable(command[0]):
            child: subprocess.Popen[bytes] = namespace.call(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**child_environment(), **(environment or {})},
                process_group=0,
            )
        try:
            yield from _pieces(child, command[0], deadline, timeout, max_octets)
            code = child.wait(max(0.0, deadline - time.monotonic()) + 1)
        except subprocess.TimeoutExpired as error:
            raise took_too_long(command[0], timeout) from error
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            assert child.stdout is not None
            child.stdout.close()
        if code:
            errors.seek(0)
            raise ToolFailedError(
                f"{command[0]}: {Finished(code, '', errors.read(_KEPT_ERRORS).decode(errors=ERRORS)).reason}"
            )


def _pieces(
    child: subprocess.Popen[bytes], program: str, deadline: float, timeout: float, max_octets: int
) -> Iterator[bytes]:
    assert child.stdout is not None
    descriptor, size = child.stdout.fileno(), 0
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    while True:
        if not ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise took_too_long(program, timeout)
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return
        size += len(piece)
        if size > max_octets:
            raise ToolFailedError(f"{program} printed more than {max_octets >> 20} MiB and was stopped")
        yield piece


@contextlib.contextmanager
def _startable(program: str) -> Iterator[None]:
    """Says why a program cannot be started. Raises ToolMissingError."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolMissingError(not_found(program)) from error
    except PermissionError as error:
        raise ToolMissingError(f"{program} cannot be executed: {error.strerror}") from error
    except OSError as error:
        raise ToolMissingError(f"{program} cannot be started: {error.strerror}") from error
