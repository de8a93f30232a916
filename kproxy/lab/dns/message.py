"""DNS messages: a query's bytes to a value, records to an answer's bytes (RFC 1035, 2782, 3596, 6891). No I/O.

As much as a server of one zone needs: one question, owner names compressed, truncation at what the client takes.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

A: Final = 1
NS: Final = 2
CNAME: Final = 5
SOA: Final = 6
PTR: Final = 12
TXT: Final = 16
AAAA: Final = 28
SRV: Final = 33
OPT: Final = 41
TYPES: Final = {A: "A", NS: "NS", CNAME: "CNAME", SOA: "SOA", PTR: "PTR", TXT: "TXT", AAAA: "AAAA", SRV: "SRV"}

NOERROR: Final = 0
FORMERR: Final = 1
NXDOMAIN: Final = 3
NOTIMP: Final = 4
REFUSED: Final = 5
RCODES: Final = {NOERROR: "NOERROR", FORMERR: "FORMERR", NXDOMAIN: "NXDOMAIN", NOTIMP: "NOTIMP", REFUSED: "REFUSED"}

MAX_UDP: Final = 512
"""Bytes of an answer over UDP, if the query does not say more."""
_EDNS_SIZE: Final = 1232
_HEADER: Final = struct.Struct("!6H")
_FIXED: Final = struct.Struct("!HHIH")
_IN: Final = 1
_QR: Final = 0x8000
_AA: Final = 0x0400
_TC: Final = 0x0200
_KEPT: Final = 0x0110  # RD and CD come back as they were


class MessageError(Exception):
    """Bytes that are no query which could be answered; `reply` is what to send all the same, if anything."""

    def __init__(self, reply: bytes = b"") -> None:
        super().__init__("malformed DNS message")
        self.reply = reply


class Query(NamedTuple):
    """A question: `name` as it was written, without the last dot. `size` is what the client takes over UDP; `edns` says
    whether it speaks RFC 6891."""

    id: int
    flags: int
    name: str
    kind: int
    size: int
    edns: bool


class Record(NamedTuple):
    """A resource record. `data`: an address; a name (CNAME, NS, PTR); text (TXT); (priority, weight, port, target);
    (mname, rname, serial, refresh, retry, expire, minimum)."""

    name: str
    kind: int
    ttl: int
    data: str | tuple[int, int, int, str] | tuple[str, str, int, int, int, int, int]


class Answer(NamedTuple):
    """What is answered to a question."""

    rcode: int
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()


def parse_query(data: bytes) -> Query:
    """A query of one question.

    Raises:
        MessageError: it is none.
    """
    if len(data) < _HEADER.size:
        raise MessageError
    number, flags, questions, answers, authorities, others = _HEADER.unpack_from(data)
    if flags & _QR:
        raise MessageError  # an answer; to answer it would go on for ever
    if flags >> 11 & 0xF:
        raise MessageError(_failure(number, flags, NOTIMP))
    try:
        if (questions, answers, authorities) != (1, 0, 0):
            raise ValueError
        name, at = _read_name(data, _HEADER.size)
        kind, _class = struct.unpack_from("!HH", data, at)
        size, edns = _read_options(data, at + 4, others)
    except (ValueError, IndexError, struct.error):
        raise MessageError(_failure(number, flags, FORMERR)) from None
    return Query(number, flags, name, kind, size, edns)


def _failure(number: int, flags: int, rcode: int) -> bytes:
    return _HEADER.pack(number, _QR | flags & (_KEPT | 0x7800) | rcode, 0, 0, 0, 0)


def _read_name(data: bytes, at: int) -> tuple[str, int]:
    """A name and where it ends. A question's is not compressed. Raises ValueError, IndexError."""
    labels = []
    total = 0
    while length := data[at]:
        total += length + 1
        label = data[at + 1 : at + 1 + length]
        if length > 63 or total > 254 or len(label) < length or b"." in label:
            raise ValueError
        labels.append(label.decode("latin-1"))
        at += 1 + length
    return ".".join(labels), at + 1


def _read_options(data: bytes, at: int, count: int) -> tuple[int, bool]:
    """What the client takes over UDP, by its OPT record, and whether it has one."""
    for _ in range(count):
        _, at = _read_name(data, at)
        kind, size, _, length = _FIXED.unpack_from(data, at)
        if kind == OPT:
            return max(MAX_UDP, size), True
        at += _FIXED.size + length
    return MAX_UDP, False


def encode(query: Query, answer: Answer, limit: int) -> bytes:
    """The bytes of an answer, at most `limit` of them: records that do not fit are left out, and TC says so. Additional
    records may be missing without a word."""
    names: dict[str, int] = {}
    body = bytearray(_write_name(query.name, names, _HEADER.size) + struct.pack("!HH", query.kind, _IN))
    options = b"\0" + _FIXED.pack(OPT, _EDNS_SIZE, 0, 0) if query.edns else b""
    room = limit - _HEADER.size - len(options)
    counts, cut = [0, 0, 0], False
    for section, records in enumerate((answer.answers, answer.authority, answer.additional)):
        for record in records:
            known = dict(names)
            text = _write_record(record, known, _HEADER.size + len(body))
            if cut or len(body) + len(text) > room:
                cut = cut or section < 2
                break
            names, counts[section] = known, counts[section] + 1
            body += text
    flags = _QR | (_AA if answer.rcode in (NOERROR, NXDOMAIN) else 0) | query.flags & _KEPT | answer.rcode
    counts[2] += query.edns
    return _HEADER.pack(query.id, flags | (_TC if cut else 0), 1, *counts) + bytes(body) + options


def _write_name(name: str, names: dict[str, int], at: int) -> bytes:
    """A name that begins at byte `at`; its end is a pointer if it was written before. Case counts."""
    found = bytearray()
    rest = name
    while rest:
        if rest in names:
            return bytes(found) + struct.pack("!H", 0xC000 | names[rest])
        if at + len(found) < 0x4000:
            names[rest] = at + len(found)
        label, _, rest = rest.partition(".")
        found += bytes([len(label)]) + label.encode("latin-1")
    return bytes(found) + b"\0"


def _write_record(record: Record, names: dict[str, int], at: int) -> bytes:
    head = _write_name(record.name, names, at)
    data = _write_data(record)
    return head + _FIXED.pack(record.kind, _IN, record.ttl, len(data)) + data


def _write_data(record: Record) -> bytes:
    data = record.data
    if isinstance(data, str):
        if record.kind in (A, AAAA):
            return ipaddress.ip_address(data).packed
        if record.kind == TXT:
            return bytes([len(data)]) + data.encode()
        return _write_name(data, {}, 0)
    if len(data) == 4:
        priority, weight, port, target = data
        return struct.pack("!3H", priority, weight, port) + _write_name(target, {}, 0)
    origin, mailbox, *numbers = data
    return _write_name(origin, {}, 0) + _write_name(mailbox, {}, 0) + struct.pack("!5I", *numbers)


def shown(records: Sequence[Record]) -> list[str]:
    """Records as text, for logs and tests."""
    return [
        f"{each.name} {TYPES.get(each.kind, each.kind)} "
        + (each.data if isinstance(each.data, str) else " ".join(map(str, each.data)))
        for each in records
    ]
