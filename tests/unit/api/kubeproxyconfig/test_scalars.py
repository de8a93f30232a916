"""Single values: what is absence, what is a value, and what is refused."""

from __future__ import annotations

import pytest

from kproxy.api.document.tree import Node
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.scalars import (
    RefusedError,
    is_default_when_zero,
    is_zero,
    read_bool,
    read_duration,
    read_float32,
    read_integer,
    read_quantity,
    read_string,
)


def test_null_is_absence() -> None:
    nothing = Node(None)
    readers = (read_string, read_bool, read_integer, read_float32, read_quantity)
    assert [read(nothing, "x") for read in readers] == [None] * 5
    assert read_duration(nothing, "conntrack.tcpEstablishedTimeout") is None
    with pytest.raises(RefusedError, match="not null"):
        read_duration(nothing, "configSyncPeriod")


def test_floats_are_rounded_to_32_bits() -> None:
    assert read_float32(Node(0.1), "clientConnection.qps") == 0.10000000149011612
    assert read_float32(Node(7), "clientConnection.qps") == 7.0


@pytest.mark.parametrize(("path", "limit"), [("oomScoreAdj", 2**31), ("logging.verbosity", 2**32)])
def test_integers_have_32_bits(path: str, limit: int) -> None:
    assert read_integer(Node(limit - 1), path) == limit - 1
    with pytest.raises(RefusedError, match="within the range"):
        read_integer(Node(limit), path)


@pytest.mark.parametrize(("node", "text"), [(Node("64Ki"), "64Ki"), (Node(64), "64"), (Node(1.5, 1, "1.50"), "1.50")])
def test_quantities_are_kept_as_written(node: Node, text: str) -> None:
    assert read_quantity(node, "x") == text


@pytest.mark.parametrize("value", ["", "Ki", "1ki", "1 Ki", "1e", "1KiB", True, "1.2.3"])
def test_not_a_quantity(value: str | bool) -> None:
    with pytest.raises(RefusedError, match="must be a quantity"):
        read_quantity(Node(value), "x")


def test_flush_frequency_may_be_nanoseconds() -> None:
    assert read_duration(Node(1_000_000_000), "logging.flushFrequency") == Duration.of("1s")
    assert read_duration(Node("1s"), "logging.flushFrequency") == Duration.of("1s")


def test_zeros() -> None:
    assert all(is_zero(value) for value in ("", 0, 0.0, Duration(), None))
    assert not any(is_zero(value) for value in ("0", 1, -0.5, Duration(-1)))
    assert [is_default_when_zero(kind) for kind in (str, int, float, Duration, bool, tuple)] == [True] * 4 + [False] * 2
