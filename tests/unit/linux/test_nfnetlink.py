"""The generation of nf_tables rules, as messages; tests/kernel/iptables/test_fingerprint.py asks the kernel."""

from __future__ import annotations

import struct

from kproxy.linux.nfnetlink import parse_generation


def message(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    pieces = [
        struct.pack("=HH", 4 + len(data), number) + data + b"\0" * (-len(data) % 4) for number, data in attributes
    ]
    body = struct.pack("=BBH", 0, 0, 0) + b"".join(pieces)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_reads_the_number_wherever_it_stands_and_of_nothing_else() -> None:
    name, number = (3, b"iptables\0"), (1, struct.pack(">I", 77))
    assert parse_generation(message(10 << 8 | 15, name, number)) == 77
    for other in (b"", message(2), message(10 << 8 | 15), message(10 << 8 | 15, (1, b"\0\0"))):
        assert parse_generation(other) is None
