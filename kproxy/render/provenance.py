"""Provenance as data for programs."""

from __future__ import annotations

import msgspec

from kproxy.render.nftables.table import RenderedObject
from kproxy.render.origin import Origin, RenderedRule


class RuleProvenance(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a rule comes from, with the API's names; what does not apply is absent.

    Attributes:
        reason: what the rule is for, in a few words.
        base: whether it is a base rule, which is there whatever the cluster holds.
        service: `namespace/name`.
        port: the name of the Service's port; "" for an unnamed one.
        endpoint_slice: `namespace/name`.
        endpoint: `ip:port`, or `[ip]:port` for IPv6.
    """

    reason: str
    base: bool = False
    service: str | None = None
    port: str | None = None
    protocol: str | None = None
    endpoint_slice: str | None = None
    endpoint: str | None = None


class RuleRecord(msgspec.Struct, frozen=True):
    """One rule as `kproxy render --format json` lists it; `rule` is its number in the chain, from 1."""

    table: str
    chain: str
    rule: int
    text: str
    provenance: RuleProvenance


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object of nftables as `kproxy render --format json` lists it.

    Attributes:
        object: table, chain, set, map, rule or element.
        table: its family and name: `ip kube-proxy`.
        text: the line of `nft -f` input that makes it.
        chain, set, map: which of these it is or is in.
        rule: a rule's number in its chain, from 1.
    """

    object: str
    table: str
    text: str
    provenance: RuleProvenance
    chain: str | None = None
    set: str | None = None
    map: str | None = None
    rule: int | None = None


def rule_record(rule: RenderedRule) -> RuleRecord:
    """Turns a rule into what programs read."""
    return RuleRecord(rule.table, rule.chain, rule.number, rule.text, _provenance(rule.origin))


def object_record(table: str, found: RenderedObject) -> ObjectRecord:
    """Turns an object of nftables into what programs read."""
    return ObjectRecord(
        found.kind,
        table,
        found.text,
        _provenance(found.origin),
        found.name if found.container == "chain" else None,
        found.name if found.container == "set" else None,
        found.name if found.container == "map" else None,
        found.number or None,
    )


def _provenance(origin: Origin) -> RuleProvenance:
    if origin.service_port is None:
        return RuleProvenance(reason=origin.reason, base=True)
    name, endpoint = origin.service_port, origin.endpoint
    return RuleProvenance(
        reason=origin.reason,
        service=name.service,
        port=name.port,
        protocol=name.protocol,
        endpoint_slice=endpoint.slice if endpoint is not None else None,
        endpoint=endpoint.address if endpoint is not None else None,
    )
