"""The lab's processes: starting them inside namespaces, finding them, ending them.

Every process carries the lab's directory in its environment (KPROXY_LAB_ID), and so do its children. That is how they
are found: there is no moment at which a process runs and is not known, and no number in a file that may by now belong
to somebody else. Signals go through a pidfd that is opened before the environment is read.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from kproxy.lab.errors import LabError
from kproxy.lab.state import LabDirectory
from kproxy.linux.namespace import Namespace
from kproxy.linux.programs import search_path

LAB: Final = "KPROXY_LAB_ID"
ROLE: Final = "KPROXY_LAB_ROLE"
PYTHON: Final = (sys.executable,)
"""The interpreter for the lab's own processes."""
KPROXY: Final = (sys.executable, "-m", "kproxy")
"""What stands for `kproxy` on a command line: the same interpreter, whatever PATH says."""
_PATIENCE: Final = 5.0


class LabProcess(msgspec.Struct, frozen=True):
    """A process of a lab. `role` is `kubelet/node-1`, say; a child of a process has its parent's role."""

    pid: int
    role: str

    @property
    def kind(self) -> str:
        return self.role.partition("/")[0]

    @property
    def node(self) -> str:
        return self.role.partition("/")[2]


def environment(lab: LabDirectory, role: str) -> dict[str, str]:
    """The environment of a lab's process."""
    return {
        **os.environ,
        "PATH": search_path(),
        LAB: str(lab.path),
        ROLE: role,
        "KUBECONFIG": str(lab.kubeconfig),
        "PYTHONUNBUFFERED": "1",
        # No proxy of this machine's knows the way into a lab.
        "NO_PROXY": "*",
        "no_proxy": "*",
    }


def start(
    lab: LabDirectory,
    role: str,
    command: Sequence[str],
    namespace: str | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a process of the lab, inside a namespace if one is named; what it says goes to its log.

    `variables` are added to its environment.

    Raises:
        LabError: it cannot be started.
        LinuxError: the namespace cannot be entered.
    """
    path = lab.log(role.replace("/", "-"))
    path.parent.mkdir(parents=True, exist_ok=True)

    def spawn() -> subprocess.Popen[bytes]:
        with path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(lab, role), **(variables or {})},
                cwd="/",
                start_new_session=True,
            )

    try:
        if namespace is None:
            return spawn()
        with Namespace.named(namespace) as inside:
            return inside.call(spawn)
    except OSError as error:
        raise LabError(f"cannot start {role}: {error.strerror or error}") from error


def find(lab: LabDirectory) -> list[LabProcess]:
    """The lab's processes that run now."""
    found = (_identify(pid, str(lab.path)) for pid in _running() if pid != os.getpid())
    return sorted(filter(None, found), key=lambda item: item.pid)


def homes() -> set[Path]:
    """The directories of all labs of which processes run."""
    return {Path(path) for pid in _running() if (path := _environment_of(pid).get(LAB))}


def _running() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def require_no_namesake(lab: LabDirectory) -> None:
    """Raises LabError if processes of a lab of the same name run that is kept under another root: both have the same
    namespaces, so making or deleting those of one would take away the other's."""
    for path in homes():
        if path.name == lab.name and path != lab.path and path.is_dir():
            raise LabError(
                f"a lab of this name is up in {path}, and namespaces go by the name: "
                f"KPROXY_LAB_DIR={path.parent} is that lab's, --name makes another one"
            )


def _identify(pid: int, lab: str) -> LabProcess | None:
    values = _environment_of(pid)
    return LabProcess(pid, values.get(ROLE, "")) if values.get(LAB) == lab else None


def _environment_of(pid: int) -> Mapping[str, str]:
    """A process's environment; nothing if it has ended, or is not ours to look at."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    pairs = (item.partition("=") for item in text.split("\0") if "=" in item)
    return {name: value for name, _, value in pairs}


def end(lab: LabDirectory, wanted: Callable[[LabProcess], bool] = lambda _process: True) -> int:
    """Kills the lab's processes that are wanted, and their children; returns how many there were.

    There is nothing that a process would have to put in order. Processes that start meanwhile are found too.

    Raises:
        LabError: some do not end.
    """
    count = 0
    for attempt in range(5):
        chosen = [item for item in find(lab) if wanted(item)]
        if not chosen:
            return count
        count += len(chosen) if attempt == 0 else 0
        handles = list(_handles(lab, chosen))
        try:
            for handle in handles:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            _wait(handles)
        finally:
            for handle in handles:
                os.close(handle)
    left_over = ", ".join(f"{item.pid} ({item.role})" for item in find(lab) if wanted(item))
    if left_over:
        raise LabError(f"processes that do not end: {left_over}")
    return count


def _handles(lab: LabDirectory, chosen: Iterable[LabProcess]) -> Iterable[int]:
    for item in chosen:
        try:
            handle = os.pidfd_open(item.pid)
        except OSError:
            continue
        # The number may have been given to another process since: look again, now that it cannot change any more.
        if _identify(item.pid, str(lab.path)) is None:
            os.close(handle)
            continue
        yield handle


def _wait(handles: Sequence[int]) -> None:
    """Waits for them to end, some seconds at most."""
    left = set(handles)
    deadline = time.monotonic() + _PATIENCE
    while left and time.monotonic() < deadline:
        poll = select.poll()
        for handle in left:
            poll.register(handle, select.POLLIN)
        left -= {number for number, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
        _reap()


def _reap() -> None:
    """Takes the exit codes of our own children; the parents of others take theirs."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
