"""The xtables lock: waiting for it, and saying who holds it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kproxy.linux.errors import LockHeldError, PrivilegeError
from kproxy.linux.iptables.legacy import lock_held_error, lock_holder, lock_path, xtables_lock
from tests.support.waiting import PATIENCE


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of our own."""
    path = tmp_path / "xtables.lock"
    monkeypatch.setenv("XTABLES_LOCKFILE", str(path))
    return path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """By another open file, as another process would hold it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_where_it_is(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lock_path() == str(lock)
    monkeypatch.delenv("XTABLES_LOCKFILE")
    assert lock_path() == "/run/xtables.lock"


def test_it_is_made_taken_and_given_back(lock: Path) -> None:
    with xtables_lock(0), lock.open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert lock_holder() == ""
    with held(lock), lock.open():
        pass
    with xtables_lock(0):
        pass


def test_when_it_is_held_for_ever_the_holder_is_named(lock: Path) -> None:
    mine = Path("/proc/self/comm").read_text().strip()
    with held(lock), pytest.raises(LockHeldError) as caught, xtables_lock(0.1):
        pytest.fail("two hold it")
    assert str(caught.value) == (
        f"the xtables lock {lock} was not free within 0.1 s: process {os.getpid()} ({mine}) holds it"
    )


def test_it_waits_until_it_is_free(lock: Path) -> None:
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with held(lock):
            taken.set()
            free.wait(PATIENCE)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(PATIENCE)
    releaser = threading.Timer(0.1, free.set)
    releaser.start()
    began = time.monotonic()
    with xtables_lock(10):
        assert free.is_set()
    assert time.monotonic() - began < 10
    holder.join()


def test_an_error_inside_gives_it_back(lock: Path) -> None:
    with pytest.raises(KeyError), xtables_lock(0):
        raise KeyError
    with xtables_lock(0):
        pass


def test_where_it_cannot_be_opened(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTABLES_LOCKFILE", str(lock / "no" / "such" / "directory"))
    with pytest.raises(PrivilegeError, match="cannot open the xtables lock"), xtables_lock(0):
        pass
    assert "its holder is unknown" in str(lock_held_error(1))
