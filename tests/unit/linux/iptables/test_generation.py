"""The generation of nf_tables rules, as messages; tests/kernel/iptables/test_generation.py asks the kernel."""

from __future__ import annotations

import struct

from kproxy.linux.iptables.generation import parse_generation

HEADER = struct.pack("=BBH", 0, 0, 0)


def message(kind: int, *attributes: tuple[int, bytes]) -> bytes:
    body = HEADER + b"".join(
        struct.pack("=HH", 4 + len(data), number) + data + b"\0" * (-len(data) % 4) for number, data in attributes
    )
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 1, 0) + body


def test_reads_the_number_wherever_it_stands() -> None:
    name, number = (3, b"iptables\0"), (1, struct.pack(">I", 77))
    assert parse_generation(message(10 << 8 | 15, number)) == 77
    assert parse_generation(message(10 << 8 | 15, name, number)) == 77


def test_anything_else_tells_nothing() -> None:
    assert parse_generation(b"") is None
    assert parse_generation(message(2)) is None
    assert parse_generation(message(10 << 8 | 15)) is None
    assert parse_generation(message(10 << 8 | 15, (1, b"\0\0"))) is None
    assert parse_generation(message(10 << 8 | 15) + b"\0\0\0\0\0\0") is None
