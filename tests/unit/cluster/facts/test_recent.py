"""The lists of `-m recent`."""

from __future__ import annotations

from kproxy.cluster.facts.recent import parse_list


def test_lists_of_recent() -> None:
    text = (
        "src=10.0.0.1 ttl: 64 last_seen: 4294967000 oldest_pkt: 2 4294966000, 4294967000\n"
        "src=fd00:0000:0000:0000:0000:0000:0000:0001 ttl: 64 last_seen: 500 oldest_pkt: 1 500\n"
    )
    assert parse_list(text, 704, 100) == {0x0A000001: (10, 20), 0xFD << 120 | 1: (2,)}
