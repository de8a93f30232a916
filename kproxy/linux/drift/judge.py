"""What drift means for packets: the wanted rules and those that were found, compared for every packet.

The comparison is that of `kproxy diff`. In a large cluster most rules cannot matter: what belongs to ServicePorts that
no finding concerns is left out on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kproxy.dataplane import Host
from kproxy.dataplane.compare.compare import Comparison, compare
from kproxy.dataplane.model.errors import BoundReachedError
from kproxy.errors import KproxyError
from kproxy.linux.host.facts import interface_addresses
from kproxy.linux.namespace import Namespace
from kproxy.linux.sync.backend import Prepared
from kproxy.linux.sync.finding import Compared
from kproxy.render import RenderOptions
from kproxy.services import ServicePort, ServiceState
from kproxy.words import counted, listed

MAX_SERVICE_PORTS: Final = 20
"""ServicePorts that are judged; the rest is counted. Findings that concern no Service are judged by the first few."""
_A_FEW: Final = 3
_SECONDS: Final = 30.0
"""The time that a comparison may take."""


def packet_effects(
    prepared: Prepared, compared: Compared, namespace: Namespace, services: Collection[str]
) -> list[str]:
    """How the rules of a family treat packets otherwise than they should, in sentences.

    Args:
        services: those that findings concern, as `namespace/name[:port]`; "" for findings that concern none.
    """
    try:
        local = interface_addresses(namespace, prepared.family)
    except KproxyError as error:
        return [f"the model cannot judge the rules as found: {error}"]
    return effects(prepared.state, prepared.options, compared, local, services)


def effects(
    state: ServiceState,
    options: RenderOptions,
    compared: Compared,
    local_addresses: Sequence[str],
    services: Collection[str],
) -> list[str]:
    """See `packet_effects`. `local_addresses`: those of the host, beside the node's IP."""
    ports = state.service_ports
    names = sorted(name for name in ports if str(name) in services)
    if "" in services:
        names += [name for name in sorted(ports) if name not in names][: max(0, _A_FEW - len(names))]
    asked = [ports[name] for name in names[:MAX_SERVICE_PORTS]]
    if not asked:
        return []
    until = time.monotonic() + _SECONDS

    def check() -> None:
        if time.monotonic() > until:
            raise BoundReachedError(f"{_SECONDS:g} seconds are over")

    try:
        local = dict.fromkeys((*local_addresses, options.node_ip))
        host = Host.simple(local, route_localnet=options.localhost_node_ports)
        wanted, found = compared.sides(asked)
        result = compare(
            wanted, found, family=options.family, host=host, examine=MAX_SERVICE_PORTS, check=check
        )  # fmt: skip
    except KproxyError as error:
        return [f"the model cannot judge the rules as found: {error}"]
    sentences = list(_sentences(result, asked))
    if len(names) > len(asked):
        sentences.append(f"{len(names) - len(asked)} more ServicePorts are concerned and were not judged")
    return sentences


def _sentences(result: Comparison, asked: Sequence[ServicePort]) -> Iterator[str]:
    whose = _names(asked)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for item in result.differences:
        where = f" from {item.sources}{f', {item.conditions}' if item.conditions else ''}"
        for place in item.places:
            address, *door = place.address, place.port, place.protocol
            keys = ((address, *door), ("", *door), (address, 0, ""))
            name = next((whose[key] for key in keys if key in whose), "")
            alike.setdefault((name, item.one, item.other), []).append(place.text + where)
    for (name, one, other), packets in alike.items():
        text = f"packets to {'; '.join(packets[:_A_FEW])}"
        if len(packets) > _A_FEW:
            text += f"; and {len(packets) - _A_FEW} more kinds"
        yield f"{f'{name}: ' if name else ''}{text}: A, as wanted, {one}; B, as found, {other}"
    for reason in dict.fromkeys(gap.reason for gap in result.undecided):
        gaps = [gap.where for gap in result.undecided if gap.reason == reason]
        yield f"the model cannot decide {listed(gaps, _A_FEW)}: {reason}"
    if result.stopped:
        yield f"packets were not compared to the end: {result.stopped}"
    if result.unexamined:
        yield f"{counted(result.unexamined, 'more destination')} found to differ, not put into words"
    if result.unusual:
        yield f"{counted(result.unusual, 'more difference')} of translated connections or the host's own endpoints"
    if result.alike:
        names = dict.fromkeys(name for (_, number, _), name in whose.items() if number)
        yield f"{listed(list(names), _A_FEW)}: every packet is treated as it should be"


def _names(ports: Sequence[ServicePort]) -> dict[tuple[str, int, str], str]:
    """What to call a ServicePort by address, port and protocol; a node port has no address, a whole Service no port."""
    found = {}
    for port in ports:
        name = f"Service {port.name} ({port.name.protocol})"
        for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_vips):
            found[ip, port.port, port.protocol] = name
            found[ip, 0, ""] = f"Service {port.name.namespace}/{port.name.name}"
        if port.node_port:
            found["", port.node_port, port.protocol] = name
    return found
