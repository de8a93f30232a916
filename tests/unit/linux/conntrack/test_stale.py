"""Waiting for packets on their way."""

from __future__ import annotations

import platform
import time

import pytest

from kproxy.linux.conntrack.stale import wait_for_packets


def test_the_kernel_says_when() -> None:
    assert wait_for_packets()


def test_where_it_cannot_some_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    monkeypatch.setattr(time, "sleep", slept.append)
    assert not wait_for_packets()
    assert slept == [0.05]
