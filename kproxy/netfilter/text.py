"""Rules as text: what iptables-save prints, split but not read, and what single lines of iptables and nft say.

Reading 160,000 rules as values takes seconds, splitting them a fraction; and two rules of equal text need no reading to
be equal. Where a line leads, which Service a comment of kube-proxy names, where it answers, is looked for when asked:

    >>> rule = '-d 10.96.0.10/32 -p udp -m comment --comment "dns/dns:udp cluster IP" -m udp --dport 53 -j KUBE-SVC-X'
    >>> target_of(rule), service_of(rule), destination_of(rule)
    ('KUBE-SVC-X', 'dns/dns:udp', Destination(address='10.96.0.10', protocol='udp', port=53))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kproxy.netfilter.family import BUILTIN_CHAINS

_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_TARGET: Final = re.compile(r"(?:^| )-[jg] (\S+)")
_COMMENT: Final = re.compile(r'--comment (?:"((?:[^"\\]|\\.)*)"|(\S+))')
_SERVICE: Final = re.compile(r'(?:^| )([^\s/:".A-Z_]+/[^\s/:".A-Z_]+(?::[^\s:"]+)?)(?: |$)')
_ADDRESS: Final = re.compile(r"(?:^|[^!] )-d (\S+)")
_PROTOCOL: Final = re.compile(r"(?:^|[^!] )-p (\S+)")
_PORT: Final = re.compile(r" --dport (\d+)(?: |$)")
_DNAT: Final = re.compile(r" --to-destination (\S+)")
_KEY: Final = re.compile(r"(?:(\S+) \. )?(tcp|udp|sctp) \. (\d+)\b")
_OWNED: Final = re.compile(
    r"(service|local|external|firewall|endpoint|affinity)-[A-Z2-7]{8}-([^/]+)/([^/]+)/([^/]+)/([^/]*?)(?:__.*)?"
)


class SaveTextError(ValueError):
    """A text is not what iptables-save prints; the message goes on after the name of who printed it."""


@dataclass(frozen=True, slots=True)
class ChainText:
    """One chain.

    Attributes:
        policy: of a built-in chain, "-" for others.
        rules: the arguments of each rule (`-A CHAIN` left out), as iptables-save prints them.
        counters: `[packets:bytes]` of each rule, "" where they were not read.
    """

    policy: str
    rules: list[str]
    counters: list[str]

    @property
    def is_builtin(self) -> bool:
        return self.policy != "-"


@dataclass(frozen=True, slots=True)
class SaveText:
    """All tables of one family and variant, by name; `dormant` are those whose chains the kernel does not call, as far
    as it was asked."""

    tables: Mapping[str, Mapping[str, ChainText]]
    dormant: frozenset[str] = frozenset()

    def chain(self, table: str, chain: str) -> ChainText | None:
        """A chain, None if it does not exist."""
        return self.tables.get(table, {}).get(chain)


def split_save(text: str) -> SaveText:
    """Splits what iptables-save printed, with or without counters.

    Raises:
        SaveTextError: it is something else.
    """
    tables: dict[str, dict[str, ChainText]] = {}
    chains: dict[str, ChainText] = {}
    for line in text.split("\n"):
        counters = ""
        if line.startswith("["):
            counters, _, line = line.partition(" ")
        if line.startswith("-A "):
            name, _, rule = line[3:].partition(" ")
            chain = chains.get(name)
            if chain is None:
                raise SaveTextError(f"printed a rule of a chain that it had not declared: {line[:200]!r}")
            chain.rules.append(rule)
            chain.counters.append(counters)
        elif line.startswith(":"):
            name, _, declared = line[1:].partition(" ")
            policy, _, counted = declared.partition(" ")
            if not (counted.startswith("[") and counted.endswith("]")):
                raise SaveTextError(f"printed an invalid declaration: {line[:200]!r}")
            chains[name] = ChainText(policy, [], [])
        elif line.startswith("*"):
            chains = tables.setdefault(line[1:], {})
            if line[1:] not in BUILTIN_CHAINS:
                raise SaveTextError(f"printed a table that Linux does not have: {line[:200]!r}")
        elif line == "COMMIT":
            chains = {}
        elif (line or counters) and not line.startswith("#"):
            raise SaveTextError(f"printed a line that does not belong to a dump: {line[:200]!r}")
    return SaveText(tables)


def reachable(chains: Iterable[str], leads_to: Callable[[str], Iterable[str]]) -> set[str]:
    """Chains, and those that they lead to, at once or through others. `leads_to` says it of one at once."""
    found: set[str] = set()
    ahead = list(chains)
    while ahead:
        chain = ahead.pop()
        if chain not in found:
            found.add(chain)
            ahead += leads_to(chain)
    return found


# --- a rule of iptables ---


class Destination(NamedTuple):
    """Where packets are sent: an address or network, "" for any; a protocol in small letters; a port."""

    address: str
    protocol: str
    port: int


def chain_of(line: str) -> str:
    """The chain of `-A CHAIN ...`; "" if a line is no rule."""
    return line[3:].partition(" ")[0] if line.startswith("-A ") else ""


def target_of(rule: str) -> str:
    """The chain or target that a rule leads to; "" if it has none."""
    # A comment may hold " -j ", and the target stands after every match: the last one outside of quotes counts.
    found = _TARGET.findall(_QUOTED.sub('""', rule) if '"' in rule else rule)
    return found[-1] if found else ""


def service_of(rule: str) -> str:
    """The `namespace/name[:port]` that kube-proxy wrote into a rule's comment; "" if there is none."""
    for quoted, plain in _COMMENT.findall(rule):
        found = _SERVICE.search(quoted or plain)
        if found is not None:
            return found[1]
    return ""


def destination_of(rule: str) -> Destination | None:
    """The packets that a rule is about; None if it names no single port."""
    protocol, port = _PROTOCOL.search(rule), _PORT.search(rule)
    if protocol is None or port is None:
        return None
    address = _ADDRESS.search(rule)
    text = "" if address is None else address[1]
    return Destination(text.removesuffix("/128" if ":" in text else "/32"), protocol[1], int(port[1]))


def endpoint_of(rule: str) -> str:
    """Where a rule translates to, `ADDRESS:PORT`; "" if it does not."""
    found = _DNAT.search(rule)
    return "" if found is None else found[1]


# --- nftables mode ---


class ChainOwner(NamedTuple):
    """The ServicePort that a chain or a set of kube-proxy's nftables mode is of. `kind`: `service`, `endpoint`, ..."""

    kind: str
    namespace: str
    name: str
    protocol: str
    port: str

    @property
    def service_port(self) -> str:
        """`namespace/name[:port]`."""
        return f"{self.namespace}/{self.name}{self.port and f':{self.port}'}"


def owner_of(name: str) -> ChainOwner | None:
    """Whose a chain or a set is by its name; None if it is no ServicePort's."""
    found = _OWNED.fullmatch(name)
    return None if found is None else ChainOwner(*found.groups())


def key_of(element: str) -> Destination | None:
    """The packets that an element of kube-proxy's maps is about: `10.96.0.1 . tcp . 443`, or `tcp . 30080`."""
    found = _KEY.match(element)
    return None if found is None else Destination(found[1] or "", found[2], int(found[3]))
