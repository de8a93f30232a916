"""Things that were not seen, the words for them, and what `--assume` decides of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from kproxy.netfilter import Family
from kproxy.netfilter.hooks import Variant
from kproxy.words import listed

TABLES: Final = {name: f"{name} table" for name in ("filter", "nat", "mangle", "raw")}
"""iptables' tables, by name."""
NFTABLES: Final = "nftables"
IPVS: Final = "ipvs"
IPSET: Final = "ipset"
CHAIN: Final = "chain"
POLICY_ROUTING: Final = "policy routing"
ROUTES: Final = "routes"
SYSCTLS: Final = "sysctls"
CONNECTION_MARK: Final = "connection mark"
BASE_CHAIN_JUMPS: Final = "base-chain jumps"
ENDPOINTS: Final = "endpoints"
CLUSTER_IPS: Final = "cluster IPs"
NODE_PORTS: Final = "node ports"
NODE_ADDRESSES: Final = "node addresses"
CONFIGURATION: Final = "kube-proxy configuration"
SERVICES: Final = "Services"
NODES: Final = "Nodes"
NO_RULES: Final = "there is no file of its rules"
VARIANTS: Final = {Variant.LEGACY: "legacy iptables", Variant.NFT: "nft iptables"}
"""All of one variant's tables."""

THINGS: Final = (
    *TABLES.values(), *VARIANTS.values(), NFTABLES, IPVS, IPSET, CHAIN,
    POLICY_ROUTING, ROUTES, SYSCTLS, CONNECTION_MARK, BASE_CHAIN_JUMPS, ENDPOINTS, CLUSTER_IPS, NODE_PORTS,
    NODE_ADDRESSES, CONFIGURATION, SERVICES, NODES,
)  # fmt: skip
"""The words that `what` may be, in the order of documentation; those of an ipset and a chain have its name behind."""
_NAMED: Final = (IPSET, CHAIN)
_SHOWN: Final = 6
_OF_EACH: Final = (IPVS, ENDPOINTS, CLUSTER_IPS, NODE_PORTS)


class Unseen(msgspec.Struct, frozen=True):
    """One thing that was not seen of a host.

    Attributes:
        host: what the source calls the host: a node's name, or the file.
        family: `IPv4` or `IPv6`; "" if it is of both, or of none.
        what: one of `THINGS`.
        why: what points to it, or what follows, as a sentence's part.
        suspected: whether the evidence itself points to it. Then whatever it may change is open. Else it is taken to be
            as on most hosts.
    """

    host: str
    family: str
    what: str
    why: str
    suspected: bool

    @property
    def thing(self) -> tuple[str, str]:
        """What makes it the same on two hosts."""
        return self.family, self.what

    def is_met_by(self, family: Family) -> bool:
        """Whether packets of a family may meet it."""
        return self.family in ("", family.value)


def suspect(host: str, family: Family | None, what: str, why: str) -> Unseen:
    """Something to which the evidence points."""
    return Unseen(host, "" if family is None else family.value, what, why, True)


def not_looked_at(host: str, family: Family | None, what: str, why: str = "") -> Unseen:
    """Something of which there is no sign."""
    return Unseen(host, "" if family is None else family.value, what, why, False)


class Assumed(msgspec.Struct, frozen=True):
    """What `--assume` says of unseen things: `complete`, that there is nothing of them; or some of them are empty."""

    complete: bool = False
    empty: frozenset[str] = frozenset()

    def decides(self, what: str) -> bool:
        """Whether a thing is taken to be empty."""
        return self.complete or what in self.empty

    def left(self, unseen: Iterable[Unseen]) -> tuple[Unseen, ...]:
        """What is not decided, each thing of a host once: as suspected if anything points to it, with all that does."""
        found: dict[tuple[str, str, str], Unseen] = {}
        for each in unseen:
            if self.decides(each.what):
                continue
            key = each.host, each.family, each.what
            other = found.get(key, each)
            if each.suspected == other.suspected:
                why = "; ".join(dict.fromkeys(filter(None, (other.why, each.why))))
                found[key] = msgspec.structs.replace(other, why=why)
            else:
                found[key] = each if each.suspected else other
        return tuple(found.values())


NOTHING: Final = Assumed()


def is_thing(text: str) -> bool:
    """Whether a text names something that may be unseen."""
    return text in THINGS or any(text.startswith(f"{each} ") for each in _NAMED)


def suspected(unseen: Iterable[Unseen]) -> tuple[Unseen, ...]:
    """Those to which the evidence points."""
    return tuple(each for each in unseen if each.suspected)


def headlines(unseen: Sequence[Unseen], same: Collection[tuple[str, str]] = ()) -> list[str]:
    """The lines that say what was not seen: one for each suspected thing, whichever hosts it is of, and one for all
    others. `same` are things that neither of two sides shows."""
    both = dict.fromkeys(each.what for each in suspected(unseen) if each.thing in same)
    lines = [f"seen of neither side, and taken to be the same on both: {', '.join(both)}"] if both else []
    alike: dict[tuple[str, str, str], list[str]] = {}
    for each in suspected(unseen):
        if each.thing not in same:
            alike.setdefault((each.what, each.family, each.why), []).append(each.host)
    for (what, family, why), hosts in alike.items():
        where = " ".join(filter(None, (listed(hosts, _SHOWN), family)))
        lines.append(f"not seen: {what} of {where}: {why}; what it may change is open")
    others = dict.fromkeys(each.what for each in unseen if not each.suspected)
    if others:
        lines.append(f"not looked at, and taken as usual: {', '.join(others)}")
    return list(dict.fromkeys(lines))


def lacking_both(one: Iterable[Unseen], other: Iterable[Unseen]) -> frozenset[tuple[str, str]]:
    """The suspected things that were seen of neither of two hosts: they are taken to be the same on both. Not those on
    which most of what the rules do depends."""
    things = [{each.thing for each in suspected(side) if each.what not in _OF_EACH} for side in (one, other)]
    return frozenset(things[0] & things[1])
