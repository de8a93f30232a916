"""The renderer: keeps every ServicePort's objects as last rendered, and says what changed.

Rendering is a function of the state: whatever sequence of changes led there, the table is the same.

Two ServicePorts may want the same element, an external IP with the same port say. kube-proxy walks its ServicePorts in
random order and the last one has it. Here the order is by Service name, namespace, port and protocol.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kproxy.render.nftables.base import BaseObjects, Rule, render_base
from kproxy.render.nftables.names import NODEPORT_IPS
from kproxy.render.nftables.serviceport import (
    ElementRef,
    ElementValue,
    ServicePortObjects,
    ServicePortOrigins,
    origins_of_service_port,
    render_service_port,
)
from kproxy.render.options import RenderOptions
from kproxy.services.names import ServicePortName
from kproxy.services.serviceport import ServicePort
from kproxy.services.topology import SelectedEndpoints, select_endpoints
from kproxy.services.tracker import ServiceState

_NOTHING: Final = ServicePortObjects({}, {}, {})


class Change(msgspec.Struct, frozen=True):
    """What differs between two states of a table.

    Attributes:
        chains: the rules of chains that are new or whose rules changed.
        stale_chains: chains that are no longer wanted.
        sets: definitions of affinity sets that are new or whose definition changed.
        stale_sets: affinity sets that are no longer wanted.
        elements: elements that are new or whose value changed.
        stale_elements: elements that are no longer wanted or whose value changed, with what they had.
    """

    chains: Mapping[str, tuple[str, ...]]
    stale_chains: tuple[str, ...]
    sets: Mapping[str, str]
    stale_sets: tuple[str, ...]
    elements: Mapping[ElementRef, ElementValue]
    stale_elements: Mapping[ElementRef, ElementValue]

    def __bool__(self) -> bool:
        return bool(
            self.chains or self.stale_chains or self.sets or self.stale_sets or self.elements or self.stale_elements
        )


class Renderer:
    """The table of one family on one node.

    Invariants:
        `_claims` holds, for each element of a shared set or map, the ServicePorts that want it, in the order that
        decides. `_elements` holds what each of `_claims` comes to.
    """

    def __init__(self, options: RenderOptions) -> None:
        self._options = options
        self._base = render_base(options)
        self._objects: dict[ServicePortName, ServicePortObjects] = {}
        self._claims: dict[ElementRef, list[_Claim]] = {}
        self._elements: dict[ElementRef, ElementValue] = {}

    @property
    def options(self) -> RenderOptions:
        return self._options

    @property
    def base(self) -> BaseObjects:
        """The objects that no ServicePort has to do with."""
        return self._base

    def chains(self) -> dict[str, tuple[str, ...]]:
        """The rules of every chain, base chains included."""
        chains = {name: tuple(map(_text, self._base.rules.get(name, ()))) for name in self._base.chains}
        for objects in self._objects.values():
            chains.update(objects.chains)
        return chains

    def affinity_sets(self) -> dict[str, str]:
        """The definition of every affinity set."""
        return {name: definition for objects in self._objects.values() for name, definition in objects.sets.items()}

    def elements(self) -> dict[ElementRef, ElementValue]:
        """Every element of the shared sets and maps, nodeport-ips included."""
        own = {(NODEPORT_IPS, ip): ElementValue() for ip in self._base.nodeport_ips or ()}
        return own | self._elements

    def chains_of(self, name: ServicePortName) -> Mapping[str, tuple[str, ...]]:
        """The ServicePort's own chains; empty if it has none."""
        return self._objects.get(name, _NOTHING).chains

    def render(self, state: ServiceState) -> None:
        """Renders everything anew."""
        self._objects, self._claims = {}, {}
        elements: dict[ElementRef, ElementValue] = {}
        favoured = self._options.favoured
        for name in sorted(state.service_ports, key=lambda name: (name.service == favoured, _order(name))):
            self._objects[name] = objects = self._render(state, name)
            claim = (_order(name), name)
            for ref, value in objects.elements.items():
                if ref not in elements:
                    elements[ref] = value
                    self._claims[ref] = [claim]
                else:
                    if elements[ref].value != value.value:
                        elements[ref] = value
                    self._claims[ref].append(claim)
        self._elements = elements

    def update(self, state: ServiceState, touched: Iterable[ServicePortName]) -> Change:
        """Renders the touched ServicePorts anew, and says what that changed."""
        chains: dict[str, tuple[str, ...]] = {}
        sets: dict[str, str] = {}
        stale_chains: set[str] = set()
        stale_sets: set[str] = set()
        refs: dict[ElementRef, None] = {}
        for name in sorted(touched):
            old = self._objects.get(name, _NOTHING)
            new = self._render(state, name) if name in state.service_ports else _NOTHING
            chains |= {chain: rules for chain, rules in new.chains.items() if old.chains.get(chain) != rules}
            sets |= {each: definition for each, definition in new.sets.items() if old.sets.get(each) != definition}
            stale_chains |= old.chains.keys() - new.chains.keys()
            stale_sets |= old.sets.keys() - new.sets.keys()
            refs |= dict.fromkeys(ref for ref in (*old.elements, *new.elements))
            self._remember(name, old, new, name in state.service_ports)
        elements: dict[ElementRef, ElementValue] = {}
        stale_elements: dict[ElementRef, ElementValue] = {}
        for ref in refs:
            before, after = self._elements.get(ref), self._resolve(ref)
            if before == after:
                continue
            if before is not None:
                stale_elements[ref] = before
                del self._elements[ref]
            if after is not None:
                elements[ref] = self._elements[ref] = after
        return Change(chains, tuple(sorted(stale_chains)), sets, tuple(sorted(stale_sets)), elements, stale_elements)

    def origins(self, state: ServiceState) -> ServicePortOrigins:
        """The provenance of every rule, and of every set and element that belongs to a ServicePort.

        Args:
            state: the state that was rendered last.
        """
        base = self._base.rules.items()
        found = ServicePortOrigins({chain: [rule.origin for rule in rules] for chain, rules in base}, {}, {})
        for name in self._objects:
            own = origins_of_service_port(*self._selected(state, name), self._options)
            found.rules.update(own.rules)
            found.sets.update(own.sets)
            for ref, origin in own.elements.items():
                if self._owner(ref) == name:
                    found.elements[ref] = origin
        return found

    def _render(self, state: ServiceState, name: ServicePortName) -> ServicePortObjects:
        return render_service_port(*self._selected(state, name), self._options)

    def _selected(self, state: ServiceState, name: ServicePortName) -> tuple[ServicePort, SelectedEndpoints]:
        service_port, endpoints = state.service_ports[name], state.endpoints.get(name, ())
        return service_port, select_endpoints(service_port, endpoints, self._options.node_name, self._options.zone)

    def _remember(
        self, name: ServicePortName, old: ServicePortObjects, new: ServicePortObjects, is_there: bool
    ) -> None:
        claim = (_order(name), name)
        for ref in old.elements.keys() - new.elements.keys():
            claims = self._claims[ref]
            claims.remove(claim)
            if not claims:
                del self._claims[ref]
        for ref in new.elements.keys() - old.elements.keys():
            insort(self._claims.setdefault(ref, []), claim)
        if is_there:
            self._objects[name] = new
        else:
            self._objects.pop(name, None)

    def _owner(self, ref: ElementRef) -> ServicePortName:
        """The ServicePort whose element it is: the first of those that want it in this form."""
        return next(name for _, name in self._claims[ref] if self._objects[name].elements[ref] == self._elements[ref])

    def _resolve(self, ref: ElementRef) -> ElementValue | None:
        """What becomes of an element when those that want it write it one after the other."""
        found: ElementValue | None = None
        for _, name in self._claims.get(ref, ()):
            value = self._objects[name].elements[ref]
            if found is None or found.value != value.value:
                found = value
        return found


_Claim = tuple[tuple[str, str, str, str], ServicePortName]


def _order(name: ServicePortName) -> tuple[str, str, str, str]:
    return (name.name, name.namespace, name.port, name.protocol)


def _text(rule: Rule) -> str:
    return rule.text
