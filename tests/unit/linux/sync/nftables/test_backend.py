"""The syncer of nftables mode: whether a table is as it was written, told without writing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproxy.linux.sync.nftables.backend import TableSyncer
from kproxy.render import RenderOptions
from kproxy.services import IPFamily, ServiceState
from tests.support.linux.nft_memory import MemoryNft
from tests.support.services.builders import make_endpoint, make_service, make_slice

TABLE = "ip kube-proxy"


class Subject:
    def __init__(self) -> None:
        self.kernel = MemoryNft(IPFamily.IPV4)
        self.state = ServiceState(IPFamily.IPV4, "node-0")
        self.syncer = TableSyncer(self.kernel, self.state, RenderOptions(node_name="node-0"))
        self.state.update_service(make_service("web"))
        self.state.update_endpoint_slice(make_slice(make_endpoint("10.244.0.5"), address_type="IPv4"))
        self.syncer.resync()

    def is_right(self) -> bool | None:
        return self.syncer.is_right(lambda: None, lambda: False)


def test_what_was_written_is_right_also_with_chains_that_wait_for_their_end() -> None:
    subject = Subject()
    assert subject.is_right()
    subject.state.update_endpoint_slice(make_slice(address_type="IPv4"))
    assert subject.syncer.sync().chains_deleted
    assert subject.is_right()


@pytest.mark.parametrize(
    "script",
    [
        f"flush map {TABLE} service-ips",
        f"add rule {TABLE} services drop",
        f"add table {TABLE} {{ flags dormant; }}",
        f"delete table {TABLE}",
    ],
)
def test_what_others_changed_is_not(script: str) -> None:
    subject = Subject()
    subject.kernel.run(f"{script}\n")
    assert subject.is_right() is False


def test_what_others_add_is_told_once() -> None:
    subject = Subject()
    subject.kernel.run(f"add chain {TABLE} theirs\n")
    assert subject.is_right() is False
    assert any("theirs" in note for note in subject.syncer.resync().notes)
    assert subject.is_right()


def test_comparing_gives_way_too() -> None:
    """Once everything was read the answer is wanted at each object."""
    subject = Subject()
    read: list[str | None] = []

    def wanted() -> Iterator[bool]:
        while not read:
            yield False
        yield from (False, False, False)
        while True:
            yield True

    listing, asked = subject.kernel.list_table(), wanted()
    subject.kernel.list_table = lambda: read.append(listing) or listing  # type: ignore[method-assign, func-returns-value]
    assert subject.syncer.is_right(lambda: None, lambda: next(asked)) is None
