"""DNS messages: queries that are read, answers that are written, and what is no query."""

from __future__ import annotations

import struct

import pytest

from kproxy.lab.dns.message import AAAA, SRV, TXT, A, Answer, MessageError, Record, encode, parse_query


def query(name: str = "Web.default.svc.cluster.local", kind: int = A, flags: int = 0x0100, size: int = 0) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label)
    options = b"\0" + struct.pack("!HHIH", 41, size, 0, 0) if size else b""
    return struct.pack("!6H", 7, flags, 1, 0, 0, bool(size)) + labels + b"\0" + struct.pack("!HH", kind, 1) + options


def name_at(data: bytes, at: int) -> tuple[str, int]:
    """A name, followed through pointers; where it ends."""
    labels, end = [], 0
    while length := data[at]:
        if length & 0xC0:
            end = end or at + 2
            at = struct.unpack_from("!H", data, at)[0] & 0x3FFF
            continue
        labels.append(data[at + 1 : at + 1 + length].decode())
        at += length + 1
    return ".".join(labels), end or at + 1


def decode(data: bytes) -> tuple[tuple[int, ...], str, list[tuple[str, int, int, bytes]]]:
    """Header, the question's name, and all records."""
    head = struct.unpack_from("!6H", data)
    asked, at = name_at(data, 12)
    at += 4
    records = []
    for _ in range(sum(head[3:])):
        name, at = name_at(data, at)
        kind, _, ttl, length = struct.unpack_from("!HHIH", data, at)
        records.append((name, kind, ttl, data[at + 10 : at + 10 + length]))
        at += 10 + length
    assert at == len(data)
    return head, asked, records


def test_a_query_and_its_answer() -> None:
    found = parse_query(query(size=4096))
    assert (found.id, found.name, found.kind, found.size, found.edns) == (
        7,
        "Web.default.svc.cluster.local",
        A,
        4096,
        True,
    )
    assert parse_query(query()).size == 512
    name = found.name
    target = "10-0-0-1.web.default.svc.cluster.local"
    answers = (Record(name, A, 30, "10.0.0.1"), Record(name, AAAA, 30, "fd00::1"), Record(name, TXT, 30, "1.1.0"))
    answer = Answer(0, (*answers, Record(name, SRV, 5, (0, 50, 80, target))), (), (Record(target, A, 30, "10.0.0.1"),))
    data = encode(found, answer, found.size)
    head, asked, records = decode(data)
    assert head == (7, 0x8500, 1, 4, 0, 2)  # QR, AA, and RD as it was
    assert asked == name
    assert [record[:3] for record in records[:-1]] == [
        (name, A, 30), (name, AAAA, 30), (name, TXT, 30), (name, SRV, 5), (target, A, 30),
    ]  # fmt: skip
    assert records[0][3] == bytes([10, 0, 0, 1])
    assert records[2][3] == b"\x051.1.0"
    assert records[3][3][:6] == struct.pack("!3H", 0, 50, 80)
    assert name_at(records[3][3] + b"\0", 6)[0] == target
    assert records[-1][1] == 41


def test_what_is_too_long_is_cut_and_said() -> None:
    found = parse_query(query())
    records = tuple(Record(found.name, A, 30, f"10.0.{number // 256}.{number % 256}") for number in range(300))
    head, _, kept = decode(encode(found, Answer(0, records), 512))
    assert head[1] & 0x0200
    assert len(encode(found, Answer(0, records), 512)) <= 512
    assert len(kept) == head[3] == (512 - 12 - len(found.name) - 6) // 16
    head, _, kept = decode(encode(found, Answer(0, records), 65535))
    assert (head[1] & 0x0200, len(kept)) == (0, 300)
    # What stands beside the answer may be missing without a word.
    head, _, kept = decode(encode(found, Answer(0, records[:1], (), records), 512))
    assert not head[1] & 0x0200


@pytest.mark.parametrize(
    ("data", "rcode"),
    [
        (b"", None),
        (b"hello", None),
        (query(flags=0x8100), None),
        (query(flags=0x2900), 4),
        (query()[:20], 1),
        (query()[:-2], 1),
        (query()[:4] + b"\0\2" + query()[6:], 1),
        (query()[:12] + b"\xc0\x0c" + query()[-4:], 1),
        (b"\0\7\1\0\0\1" + b"\0" * 6 + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1", 1),
    ],
)
def test_what_is_no_query(data: bytes, rcode: int | None) -> None:
    with pytest.raises(MessageError) as caught:
        parse_query(data)
    reply = caught.value.reply
    assert (reply == b"") if rcode is None else (reply[3] & 0xF == rcode and reply[2] & 0x80)
