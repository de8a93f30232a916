"""Provenance as data for programs."""

from __future__ import annotations

from typing import Final

import msgspec

from kproxy.render.origin import Origin, RenderedObject, RenderedRule


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


class ObjectRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One object of nftables, or of IPVS mode, as `kproxy render --format json` lists it.

    Attributes:
        object: what it is; see `RenderedObject`.
        table: the family and name of a table of nftables: `ip kube-proxy`.
        text: the line that makes it, as `RenderedObject` has it.
        chain, set, map, server, device: which of these it is or is in.
        rule: a rule's number in its chain, from 1.
    """

    object: str
    table: str | None = None
    text: str
    provenance: RuleProvenance
    chain: str | None = None
    set: str | None = None
    map: str | None = None
    server: str | None = None
    device: str | None = None
    rule: int | None = None


def rule_record(rule: RenderedRule) -> RuleRecord:
    """Turns a rule into what programs read."""
    return RuleRecord(rule.table, rule.chain, rule.number, rule.text, _provenance(rule.origin))


def object_record(found: RenderedObject, table: str | None = None) -> ObjectRecord:
    """Turns an object into what programs read. `table`: of nftables."""
    containers = {field: found.name for field, container in _CONTAINERS.items() if found.container == container}
    return ObjectRecord(
        object=found.kind,
        table=table,
        text=found.text,
        provenance=_provenance(found.origin),
        rule=found.number or None,
        **containers,
    )


_CONTAINERS: Final = {"chain": "chain", "set": "set", "map": "map", "server": "virtual server", "device": "device"}
"""What an object is or is in, by the field that says so."""


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
