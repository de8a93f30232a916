"""Reads what people have of IPVS: `ipvsadm -Sn`, `ipvsadm -Ln` with any columns, `-Lnc`, and the files in /proc/net.

`ipvsadm -ln` is the same as `-Ln`. Names in the place of numbers (without -n) are refused: which address or port they
stand for is only known on the host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

import msgspec

from kproxy.errors import InputError
from kproxy.netfilter.ipvs.server import FORWARDING, PROTOCOL_OPTIONS, UNTOLD, RealServer, VirtualServer

_HEADING: Final = "IP Virtual Server version"
_CONNECTIONS: Final = "IPVS connection entries"
_PROC_CONNECTIONS: Final = "Pro FromIP"
_COMMAND: Final = re.compile(r"-[Aa] (-[tuf]|--\w+-service) ")

_OPTIONS: Final = {
    **{option: protocol for protocol, option in PROTOCOL_OPTIONS.items()},
    "--tcp-service": "tcp", "--udp-service": "udp",
}  # fmt: skip
_FORMS: Final = {"-m": "m", "--masquerading": "m", "-g": "g", "--gatewaying": "g", "-i": "i", "--ipip": "i"}
_FLAGS: Final = {*_FORMS, "-o", "--ops"}  # the options without a value


class Listed(msgspec.Struct):
    """Virtual servers and their real servers, in the order of the text.

    Attributes:
        by_mark: how many virtual servers are of firewall marks, which nothing here answers for.
    """

    servers: dict[VirtualServer, list[RealServer]]
    by_mark: int = 0


class Entry(msgspec.Struct, frozen=True):
    """One connection of IPVS: from a client to a virtual server, and the real server that it goes to.

    A template, by which a client keeps its real server, has the client's port 0.

    Attributes:
        protocol: in lower case.
        client, virtual, real: address and port.
        state: ipvsadm's word.
        seconds: after how many it is forgotten, if nothing comes.
    """

    protocol: str
    client: tuple[str, int]
    virtual: tuple[str, int]
    real: tuple[str, int]
    state: str = ""
    seconds: int = 0


def is_servers(text: str) -> bool:
    """Whether a text begins as one that `read_servers` reads, blank lines aside."""
    first = _first_line(text)
    return first.startswith(_HEADING) or _COMMAND.match(first) is not None


def is_connections(text: str) -> bool:
    """Whether a text begins as one that `read_connections` reads, blank lines aside."""
    return _first_line(text).startswith((_CONNECTIONS, _PROC_CONNECTIONS))


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def read_servers(text: str, label: str) -> Listed:
    """Reads virtual servers in any form. Raises InputError: a line is none."""
    reader = _Servers(in_proc="RemoteAddress:Port Forward" in text)  # one space: the file in /proc
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith((_HEADING, "Prot ", "#")) or words[:2] == ["->", "RemoteAddress:Port"]:
            continue
        try:
            reader.read(words)
        except (ValueError, LookupError) as error:
            raise InputError(f"{label}:{number}: a line of ipvsadm expected, not {line.strip()!r}") from error
    return reader.found


class _Servers:
    """Reads the lines one after the other: a real server belongs to the virtual server before it, or names it."""

    def __init__(self, in_proc: bool) -> None:
        self.found = Listed({})
        self._in_proc = in_proc
        self._current: list[RealServer] | None = None
        self._by_name: dict[str, list[RealServer]] = {}

    def read(self, words: Sequence[str]) -> None:
        """Raises ValueError, LookupError: it is no such line."""
        if words[0] in ("-A", "-a"):
            self._command(words)
        elif words[0] == "->":
            if self._current is None:
                raise ValueError(words[1])
            self._current.append(_listed_real(words, self._in_proc))
        else:
            self._listed_server(words)

    def _command(self, words: Sequence[str]) -> None:
        """A line of `ipvsadm -Sn`."""
        values: dict[str, str] = {}
        rest = iter(words[1:])
        for word in rest:
            values[word] = "" if word in _FLAGS else next(rest, "")
        if "-f" in values or "--fwmark-service" in values:
            self.found.by_mark += words[0] == "-A"
            return
        option, *_ = (word for word in values if word in _OPTIONS)
        protocol, (address, port) = _OPTIONS[option], _decimal(values[option])
        if words[0] == "-A":
            flags = tuple(filter(None, values.get("-b", "").split(",")))
            scheduler, persistence = values.get("-s", "wlc"), int(values.get("-p", 0))
            self._add(VirtualServer(protocol, address, port, scheduler, persistence, flags))
            return
        form = next((_FORMS[word] for word in values if word in _FORMS), "g")
        real = RealServer(*_decimal(values["-r"]), int(values.get("-w", 1)), form)
        self._by_name[VirtualServer(protocol, address, port).name].append(real)

    def _listed_server(self, words: Sequence[str]) -> None:
        """`TCP  10.96.0.1:443 rr persistent 10800`."""
        if words[0] == "FWM":
            self.found.by_mark += 1
            self._current = []
            return
        protocol = words[0].lower()
        if protocol not in PROTOCOL_OPTIONS:
            raise ValueError(protocol)
        address, port = _at(words[1], self._in_proc)
        if len(words) < 3 or not words[2].isalpha():  # with --stats, say, there are only counters
            self._add(VirtualServer(protocol, address, port, "", UNTOLD))
            return
        seconds = words[words.index("persistent") + 1] if "persistent" in words else "0"
        # The file in /proc counts ticks of the kernel, whose length it does not tell.
        persistence = UNTOLD if self._in_proc and "persistent" in words else int(seconds)
        flags = next((word.strip("()").split(",") for word in words[3:] if word.startswith("(")), [])
        self._add(VirtualServer(protocol, address, port, words[2], persistence, tuple(flags)))

    def _add(self, server: VirtualServer) -> None:
        self._current = self._by_name[server.name] = self.found.servers.setdefault(server, [])


def _listed_real(words: Sequence[str], in_proc: bool) -> RealServer:
    """`-> 10.244.0.5:80 Masq 1 0 0`; with --stats only counters follow the address."""
    address, port = _at(words[1], in_proc)
    if len(words) < 4 or words[2] not in FORWARDING:
        return RealServer(address, port, UNTOLD, "")
    weight, *connections = map(int, words[3:6])
    return RealServer(address, port, weight, FORWARDING[words[2]], *connections)


def _at(text: str, in_proc: bool) -> tuple[str, int]:
    """An address and a port; in /proc, IPv4 addresses and ports have hexadecimal digits."""
    if not in_proc:
        return _decimal(text)
    host, _, port = text.rpartition(":")
    address = host.strip("[]") if host.startswith("[") else ipaddress.IPv4Address(bytes.fromhex(host))
    return str(ipaddress.ip_address(str(address))), int(port, 16)


def _decimal(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return str(ipaddress.ip_address(host.strip("[]"))), int(port)


def read_connections(text: str, label: str) -> list[Entry]:
    """Reads `ipvsadm -Lnc` or /proc/net/ip_vs_conn. Raises InputError: a line is none."""
    found = []
    entry = _listed_entry if _first_line(text).startswith(_CONNECTIONS) else _proc_entry
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or line.startswith((_CONNECTIONS, "pro expire", _PROC_CONNECTIONS)):
            continue
        try:
            found.append(entry(words))
        except (ValueError, IndexError) as error:
            raise InputError(f"{label}:{number}: a connection of IPVS expected, not {line.strip()!r}") from error
    return found


def _listed_entry(words: Sequence[str]) -> Entry:
    """`TCP 00:57  SYN_RECV  10.15.144.102:43614 10.15.62.208:19080 10.15.144.71:19080`."""
    minutes, _, seconds = words[1].partition(":")
    client, virtual, real = map(_decimal, words[3:6])
    return Entry(words[0].lower(), client, virtual, real, words[2], int(minutes) * 60 + int(seconds))


def _proc_entry(words: Sequence[str]) -> Entry:
    """`TCP 0A0F9066 AA5E 0A0F3ED0 4A88 0A0F9047 4A88 ESTABLISHED 897`."""
    hosts = (f"[{host}]" if ":" in host else host for host in words[1:7:2])
    client, virtual, real = (_at(f"{host}:{port}", True) for host, port in zip(hosts, words[2:7:2], strict=True))
    return Entry(words[0].lower(), client, virtual, real, words[7], int(words[8]))
