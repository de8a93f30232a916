"""What nat and reject statements do, in the terms of iptables' targets: the kernel has them once, for both.

Theory: docs/symbolic.md, "nftables".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kproxy.dataplane.symbolic.ask import OpaqueError
from kproxy.dataplane.symbolic.nftables.comparisons import elements_of
from kproxy.dataplane.symbolic.translated import Destination, destinations_of
from kproxy.netfilter.address import Network
from kproxy.netfilter.family import Family
from kproxy.netfilter.iptables.codec import Range as IptablesRange
from kproxy.netfilter.iptables.targets import (
    DnatTarget,
    MasqueradeTarget,
    NatRange,
    NetmapTarget,
    RedirectTarget,
    RejectTarget,
    SnatTarget,
    Target,
)
from kproxy.netfilter.nftables.expression import MapLookup
from kproxy.netfilter.nftables.ruleset import Table
from kproxy.netfilter.nftables.statement import Nat, Reject
from kproxy.netfilter.nftables.value import Prefix, Range

_REJECTS: Final = {
    "icmp": {
        0: "icmp-net-unreachable", 1: "icmp-host-unreachable", 2: "icmp-proto-unreachable",
        3: "icmp-port-unreachable", 9: "icmp-net-prohibited", 10: "icmp-host-prohibited", 13: "icmp-admin-prohibited",
    },
    "icmpv6": {
        0: "icmp6-no-route", 1: "icmp6-adm-prohibited", 3: "icmp6-addr-unreachable", 4: "icmp6-port-unreachable",
        5: "icmp6-policy-fail", 6: "icmp6-reject-route",
    },
}  # fmt: skip
_ICMPX: Final = {Family.IPV4: {0: 0, 1: 3, 2: 1, 3: 13}, Family.IPV6: {0: 0, 1: 4, 2: 3, 3: 1}}
"""What the family-independent codes are in each family (nft_reject_icmp_code, nft_reject_icmpv6_code)."""


def target_of(statement: Nat, family: Family, address: object, port: object) -> Target:
    """The target that translates to this address and port, each a constant or None.

    Raises:
        OpaqueError: they are not constants.
    """
    ports = None if port is None else IptablesRange(*_interval(port))
    random, fully = "random" in statement.flags, "fully-random" in statement.flags
    if statement.kind == "masquerade":
        return MasqueradeTarget(ports, random=random, random_fully=fully)
    if statement.kind == "redirect":
        return RedirectTarget(ports, random=random or fully)
    if statement.prefix:
        if not isinstance(address, Prefix):
            raise OpaqueError
        return NetmapTarget(Network(family, address.address, address.mask))
    wanted = NatRange(family, None if address is None else _interval(address), ports)
    persistent = "persistent" in statement.flags
    if statement.kind == "dnat":
        return DnatTarget(wanted, random or fully, persistent)
    return SnatTarget(wanted, random, fully, persistent)


def _interval(value: object) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if isinstance(value, (Prefix, Range)):
        return value.first, value.last
    raise OpaqueError


def target_of_data(statement: Nat, family: Family, data: object) -> Target:
    """The target for the data of a map. Raises OpaqueError."""
    if statement.concatenated:
        if not isinstance(data, tuple) or len(data) != 2:
            raise OpaqueError
        return target_of(statement, family, data[0], data[1])
    return target_of(statement, family, data, statement.port)


def looked_up(statement: Nat) -> MapLookup | None:
    """The map that a statement's address comes from, None if it is a constant."""
    return statement.address if isinstance(statement.address, MapLookup) else None


def is_of(statement: Nat, family: Family) -> bool:
    """Whether a statement translates packets of this family."""
    return statement.family in (None, "ip" if family is Family.IPV4 else "ip6")


def targets_of(statement: Nat, table: Table, family: Family) -> Iterator[Target]:
    """All targets that a statement stands for."""
    if not is_of(statement, family):
        return
    lookup = looked_up(statement)
    try:
        if lookup is None:
            yield constant_target(statement, family)
        else:
            for element in elements_of(table, lookup.map):
                yield target_of_data(statement, family, element.data)
    except OpaqueError:
        return


def constant_target(statement: Nat, family: Family) -> Target:
    """The target of a statement without a map. Raises OpaqueError."""
    if statement.concatenated:
        return target_of_data(statement, family, statement.address)
    return target_of(statement, family, statement.address, statement.port)


def destinations(tables: Iterable[Table], family: Family) -> set[Destination]:
    """All translated destinations that native rules may lead to."""
    return {
        destination
        for table in tables
        for chain in table.chains
        for rule in chain.rules
        for statement in rule.statements
        if isinstance(statement, Nat)
        for target in targets_of(statement, table, family)
        for destination in destinations_of(target, family)
    }


def reject_target(statement: Reject, family: Family) -> RejectTarget | None:
    """The target that sends the same answer; None if the statement is not for this family."""
    kind, code = statement.kind, statement.code
    if kind == "tcp reset":
        return RejectTarget("tcp-reset")
    if kind == "icmpx":
        kind, code = ("icmp" if family is Family.IPV4 else "icmpv6"), _ICMPX[family].get(code, -1)
    elif (kind == "icmp") != (family is Family.IPV4):
        return None
    return RejectTarget(_REJECTS[kind].get(code, f"{kind} code {code}"))
