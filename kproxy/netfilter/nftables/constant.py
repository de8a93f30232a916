"""Constants as text: reading and writing the values of each data type.

`constant_reader` makes a function that takes one word (or string in quotes) as it stands in a rule or an element;
ranges and prefixes are part of the word. `write_constant` gives it back as nft prints it. Both work through one
function per type, kept in a table, because a rule set holds hundreds of thousands of constants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from kproxy.netfilter.address import format_address, parse_address
from kproxy.netfilter.family import PROTOCOL_NUMBERS, Family
from kproxy.netfilter.nftables.datatype import DataType, Form
from kproxy.netfilter.nftables.value import InterfacePrefix, Prefix, Range, Single

_NUMBER: Final = re.compile(r"0[xX]([0-9a-fA-F]+)|(0[0-7]*)")
_DURATION: Final = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_UNITS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_ETHER: Final = re.compile(r"[0-9a-fA-F]{1,2}(?::[0-9a-fA-F]{1,2}){5}")
_CLASS: Final = re.compile(r"([0-9a-fA-F]{0,4}):([0-9a-fA-F]{0,4})")
_CLASS_NAMES: Final = {"none": 0, "root": 0xFFFFFFFF}
_PROTOCOL_ALIASES: Final = {"icmpv6": 58, "ipv6-icmp": 58}


class UnknownNameError(ValueError):
    """A name that kproxy does not know, where nft may know it."""


def unquote(word: str) -> str:
    """A string without its quotes; other words as they are."""
    return word[1:-1] if word[:1] == '"' else word


def read_number(text: str) -> int:
    """A decimal, 0x hexadecimal or 0 octal number. Raises ValueError."""
    if text.isascii() and text.isdigit() and text[0] != "0" and len(text) < 80:
        return int(text)
    found = _NUMBER.fullmatch(text) if len(text) < 80 else None
    if found is None:
        raise ValueError(f"a number expected, not {text!r}")
    return int(found[2], 8) if found[2] else int(found[1], 16)


def read_duration(text: str) -> int:
    """A duration as nft writes it, `1d2h3m4s500ms`, or a number of seconds; milliseconds. Raises ValueError."""
    text = unquote(text)
    if text.isdigit() and text.isascii() and len(text) < 20:
        return int(text) * 1000
    found = _DURATION.fullmatch(text) if text and len(text) < 60 else None
    if found is None:
        raise ValueError(f"a duration expected, not {text!r}")
    return sum(int(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True) if part)


def write_duration(milliseconds: int) -> str:
    """A duration as nft prints it."""
    if milliseconds == 0:
        return "0s"
    parts = []
    rest = milliseconds
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")):
        number, rest = divmod(rest, unit)
        if number:
            parts.append(f"{number}{name}")
    return "".join(parts)


def read_ipv4(text: str) -> int:
    """An IPv4 address. Raises ValueError."""
    if text.count(".") != 3:
        raise ValueError(f"an IPv4 address expected, not {text!r}")
    return parse_address(text, Family.IPV4)


def _read_ether(text: str) -> int:
    if not _ETHER.fullmatch(text):
        raise ValueError(f"an Ethernet address expected, not {text!r}")
    return int("".join(f"{int(part, 16):02x}" for part in text.split(":")), 16)


def _read_class(text: str) -> int:
    if text in _CLASS_NAMES:
        return _CLASS_NAMES[text]
    found = _CLASS.fullmatch(text)
    if found is None:
        return read_number(text)
    return int(found[1] or "0", 16) << 16 | int(found[2] or "0", 16)


def _named(names: Mapping[str, int], kind: DataType) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = names.get(text)
        if number is None:
            bare = unquote(text)
            if bare[:1].isdigit() and bare not in names:
                return read_number(bare)
            number = names.get(bare)
            if number is None:
                error = UnknownNameError if bare[:1].isalpha() or bare[:1] == "_" else ValueError
                raise error(f"a value of type {kind.name} expected, not {text!r}")
        return number

    return read


def _names_of(kind: DataType) -> dict[str, int]:
    names = {name: number for number, name in kind.names.items()}
    if kind.name == "inet_proto":
        names = {**PROTOCOL_NUMBERS, **names, **_PROTOCOL_ALIASES}
        del names["all"]
    return names


@cache
def atom_reader(kind: DataType) -> Callable[[str], int]:
    """The function that reads one number of a type, without ranges and prefixes; it raises ValueError."""
    reader = _FORMS.get(kind.form, (None,))[0]
    return _named(_names_of(kind), kind) if reader is None else reader


def _read_string(text: str) -> str | InterfacePrefix:
    bare = unquote(text)
    if bare.endswith("\\*"):
        return bare[:-2] + "*"
    return InterfacePrefix(bare[:-1]) if bare.endswith("*") else bare


def _read_index(text: str) -> Single:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else _read_string(text)


def _read_prefix(kind: DataType, address: str, length: str) -> Single:
    number = atom_reader(kind)(address)
    if kind.form is Form.IPV4 and "." in length:
        mask = read_ipv4(length)
        bits = mask.bit_count()
        if mask != (0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF:
            raise ValueError(f"a mask without holes expected, not {length!r}")
    else:
        bits = read_number(length)
    width = kind.bits
    if bits > width:
        raise ValueError(f"a prefix length of at most {width} expected, not {length!r}")
    if bits == width:
        return number
    return Prefix(number >> (width - bits) << (width - bits), bits, width)


@cache
def constant_reader(kind: DataType) -> Callable[[str], Single]:
    """The function that reads one constant of a type: a number, a range, a prefix, a string. It raises ValueError."""
    if kind.form is Form.STRING:
        return _read_index if kind.name == "iface_index" else _read_string
    atom = atom_reader(kind)
    most = kind.mask if kind.bits else None

    def read(text: str) -> Single:
        try:
            number = atom(text)
        except ValueError:
            if text[:1] == '"':
                raise
            address, slash, length = text.partition("/")
            if slash and kind.bits:
                return _read_prefix(kind, address, length)
            first, dash, last = _split_range(text, kind)
            if not dash:
                raise
            return read_range(first, last, kind)
        if most is not None and number > most:
            _fits(number, most, kind, text)
        return number

    return read


def read_range(first: str, last: str, kind: DataType) -> Single:
    """The values from first to last. Raises ValueError."""
    if kind.form is Form.FLAGS:
        raise ValueError(f"flags expected, not the range {first}-{last}")
    atom = atom_reader(kind)
    low, high = atom(first), atom(last)
    if low > high:
        raise ValueError(f"a range with its lower end first expected, not {first}-{last}")
    _fits(max(low, high), kind.mask if kind.bits else None, kind, last)
    return low if low == high else Range(low, high)


def _fits(number: int, most: int | None, kind: DataType, text: str) -> None:
    if most is not None and number > most and kind.form is not Form.TIME:
        raise ValueError(f"a value of type {kind.name} expected (at most {most}), not {text!r}")


def _split_range(text: str, kind: DataType) -> tuple[str, str, str]:
    """The two ends of a range; a name may hold a `-` itself."""
    dash = text.find("-")
    names = _names_of(kind) if not text[:1].isdigit() and kind.form in (Form.NUMBER, Form.HEX) else {}
    while dash > 0 and names and text[:dash] not in names:
        dash = text.find("-", dash + 1)
    return (text[:dash], "-", text[dash + 1 :]) if 0 < dash < len(text) - 1 else (text, "", "")


def _write_hex(kind: DataType) -> Callable[[int], str]:
    digits = (kind.bits + 3) // 4
    return lambda number: f"0x{number:0{digits}x}"


def _write_class(number: int) -> str:
    return {0: "none", 0xFFFFFFFF: "root"}.get(number) or f"{number >> 16:x}:{number & 0xFFFF:x}"


def _write_ether(number: int) -> str:
    text = f"{number:012x}"
    return ":".join(text[i : i + 2] for i in range(0, 12, 2))


def _write_flags(kind: DataType, separator: str) -> Callable[[int], str]:
    def write(number: int) -> str:
        names, rest = [], number
        for bit, name in sorted(kind.names.items()):
            if number & bit:
                names.append(name)
                rest &= ~bit
        if rest or not names:
            names.append(f"0x{rest:x}")
        return separator.join(names)

    return write


_FORMS: Final[Mapping[Form, tuple[Callable[[str], int], Callable[[int], str]]]] = {
    Form.IPV4: (read_ipv4, lambda number: format_address(number, Family.IPV4)),
    Form.IPV6: (lambda text: parse_address(text, Family.IPV6), lambda number: format_address(number, Family.IPV6)),
    Form.ETHER: (_read_ether, _write_ether),
    Form.TIME: (read_duration, write_duration),
    Form.CLASSID: (_read_class, _write_class),
}
"""What reads a number of a form, and what writes it; of the other forms names decide."""


@cache
def atom_writer(kind: DataType, separator: str = ",") -> Callable[[int], str]:
    """The function that writes one number of a type; `separator` joins flags."""
    if kind.form is Form.FLAGS:
        return _write_flags(kind, separator)
    plain: Callable[[int], str] = _write_hex(kind) if kind.form is Form.HEX else _FORMS.get(kind.form, (None, str))[1]
    if not kind.names:
        return plain
    return lambda number: kind.names.get(number) or plain(number)


def write_constant(value: Single, kind: DataType, *, separator: str = ",") -> str:
    """One constant of a type as nft prints it."""
    write = atom_writer(kind, separator)
    if isinstance(value, int):
        return write(value)
    if isinstance(value, str):
        return '"' + (value[:-1] + "\\*" if value.endswith("*") else value) + '"'
    if isinstance(value, InterfacePrefix):
        return f'"{value.prefix}*"'
    if isinstance(value, Prefix):
        return f"{write(value.address)}/{value.length}"
    return f"{write(value.first)}-{write(value.last)}"
