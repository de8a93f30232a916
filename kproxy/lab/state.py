"""The directory of a lab: /run/kproxy-lab/NAME, or below $KPROXY_LAB_DIR.

    lab.json        the spec, how far the lab has come, the API server's port, the nodes there are
    lock            held by the process that changes the lab
    kubeconfig      for people on this machine: 127.0.0.1
    kubeconfig.node for the nodes: the fabric's address
    network         there once the fabric is
    bin/            the CNI launcher
    apiserver/      the API server's data
    nodes/NODE/     CNI configuration, IPAM's data, results of ADD, the socket behind the launcher, overlay.ready
    logs/           what each process says

It is made before anything else and removed after everything else, so that a lab that crashed is always found again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from kproxy.lab.errors import LabError, LabInputError
from kproxy.lab.spec import LabSpec, NodePlan, check_name

DEFAULT_ROOT: Final = "/run/kproxy-lab"
Phase = Literal["starting", "up", "stopping"]
_LEFT_BEHIND: Final = 2.0
"""Seconds that the lock is tried for."""


class LabRecord(msgspec.Struct, frozen=True):
    """What lab.json holds. `port` is the API server's on 127.0.0.1, 0 if not known yet; `nodes` are numbers; `owner`
    are the user and group that made the lab by sudo, and use its kubeconfig."""

    spec: LabSpec
    phase: Phase
    port: int = 0
    nodes: tuple[int, ...] = ()
    owner: tuple[int, int] | None = None


def lab_root() -> Path:
    """The directory that holds those of all labs."""
    # The lab's processes run in /, and get this path.
    return Path(os.environ.get("KPROXY_LAB_DIR") or DEFAULT_ROOT).absolute()


class LabDirectory:
    """A lab's directory; it need not be there."""

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.name = name
        self.path = (root or lab_root()) / name

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def node_kubeconfig(self) -> Path:
        return self.path / "kubeconfig.node"

    def node(self, name: str) -> Path:
        """A node's own directory."""
        return self.path / "nodes" / name

    def overlay_ready(self, node: str) -> Path:
        """Where a node's overlay process says that it is ready."""
        return self.node(node) / "overlay.ready"

    def log(self, process: str) -> Path:
        """The file with a process's output."""
        return self.path / "logs" / f"{process}.log"

    def exists(self) -> bool:
        return self.path.is_dir()

    def record(self) -> LabRecord | None:
        """What is known of the lab; None if there is none, or its file is not whole.

        Raises:
            LabError: this user may not know.
        """
        path = self.path / "lab.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=LabRecord)
        except PermissionError as error:
            raise LabError(f"{path}: {error.strerror}") from error
        except (OSError, msgspec.DecodeError):
            return None

    def running(self) -> LabRecord:
        """The record of a lab that is up.

        Raises:
            LabError: it is not.
        """
        record = self.record()
        if record is None:
            known = [each.name for each in list_labs()]
            there = f"; there are: {', '.join(known)}" if known else ""
            raise LabInputError(f"there is no lab {self.name!r}: `kproxy lab up --name {self.name}` makes one{there}")
        if record.phase != "up":
            raise LabError(
                f"lab {self.name!r} is not up: it was left {record.phase}; `kproxy lab up` tries again, "
                f"`kproxy lab down --name {self.name}` cleans up"
            )
        return record

    def write(self, record: LabRecord) -> None:
        """Replaces the record, whole or not at all."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
        for part in ("logs", "nodes"):
            (self.path / part).mkdir(exist_ok=True)
        temporary = self.path / "lab.json.new"
        temporary.write_bytes(msgspec.json.encode(record))
        temporary.replace(self.path / "lab.json")

    def plans(self, record: LabRecord) -> list[NodePlan]:
        """The nodes of the lab as it is now."""
        return [record.spec.node(number) for number in record.nodes]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lab's lock.

        A command that was killed just when it started a child leaves the lock to the child, until that executes its
        program: so it is tried for a moment.

        Raises:
            LabError: another process holds it, or the directory cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o755)
            lock = (self.path / "lock").open("ab")
        except OSError as error:
            raise LabError(f"{self.path}: {error.strerror or error}") from error
        with lock:
            deadline = time.monotonic() + _LEFT_BEHIND
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise LabError(f"another command is changing lab {self.name!r} right now") from None
                    time.sleep(0.02)
            yield

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def log_tail(self, process: str, lines: int = 15) -> str:
        """The end of a process's log."""
        try:
            text = self.log(process).read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def open_lab(name: str) -> tuple[LabDirectory, LabRecord]:
    """A lab that is up.

    Raises:
        LabError: it is not up, or this process may not touch it.
    """
    lab = LabDirectory(check_name(name))
    record = lab.running()
    need_root()
    return lab, record


def need_root() -> None:
    """Raises LabError without root."""
    if os.geteuid() != 0:
        raise LabError("a lab needs root: its hosts are network namespaces")


def list_labs() -> list[LabDirectory]:
    """All labs that have a directory, by name."""
    base = lab_root()
    if not base.is_dir():
        return []
    return [LabDirectory(path.name, base) for path in sorted(base.iterdir()) if path.is_dir()]
