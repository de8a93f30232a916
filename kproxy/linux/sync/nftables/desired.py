"""What the kernel should hold in nftables mode: one family's table, and what of it belongs to which Service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kproxy.linux.nftables.ownership import service_of
from kproxy.linux.nftables.table import SetText, TableText
from kproxy.render import RenderedTable
from kproxy.render.nftables.names import NODEPORT_IPS, TABLE, nft_family
from kproxy.render.nftables.renderer import Renderer
from kproxy.render.nftables.serviceport import ElementRef, ElementValue
from kproxy.render.origin import Origin
from kproxy.services.names import IPFamily


class TableOrigins(msgspec.Struct, frozen=True):
    """Where objects of a table come from: rules by chain, in order, sets by name, and elements."""

    rules: Mapping[str, list[Origin]] = {}
    sets: Mapping[str, Origin] = {}
    elements: Mapping[ElementRef, Origin] = {}


class DesiredTable(msgspec.Struct, frozen=True):
    """One family's table as it should be.

    Attributes:
        owners: the Service port of chains that belong to one, `namespace/name[:port]`.
        origins: gives the origin of every object. Called only when they are asked for.
    """

    family: IPFamily
    text: TableText
    owners: Mapping[str, str] = {}
    origins: Callable[[], TableOrigins] = TableOrigins

    def owner_of_chain(self, chain: str) -> str:
        """The Service port whose chain or affinity set it is; "" if it belongs to none."""
        return self.owners.get(chain) or service_of(chain)


def desired_table(rendered: RenderedTable) -> DesiredTable:
    """What the kernel should hold for a rendered table."""
    renderer = rendered.renderer
    return DesiredTable(
        rendered.options.family,
        table_text(renderer),
        {chain: str(name) for name in rendered.state.service_ports for chain in renderer.chains_of(name)},
        lambda: _origins(rendered),
    )


def table_text(renderer: Renderer) -> TableText:
    """The table that a renderer holds."""
    base = renderer.base
    rules = renderer.chains()
    sets = {name: SetText("set", definition) for name, (definition, _) in base.sets.items()}
    sets |= {name: SetText("map", definition) for name, (definition, _) in base.maps.items()}
    sets |= {name: SetText("set", definition) for name, definition in renderer.affinity_sets().items()}
    return TableText(
        f"{nft_family(renderer.options.family)} {TABLE}",
        base.table,
        {chain: base.chains[chain][0] if chain in base.chains else "" for chain in sorted(rules)},
        {chain: own for chain, own in rules.items() if own},
        sets,
        renderer.elements(),
    )


def _origins(rendered: RenderedTable) -> TableOrigins:
    found = rendered.renderer.origins(rendered.state)
    base = rendered.renderer.base
    elements = {(NODEPORT_IPS, ip): Origin("base element: address of the node") for ip in base.nodeport_ips or ()}
    return TableOrigins(found.rules, found.sets, {**elements, **found.elements})


class ElementOwners:
    """The Service ports of elements, as far as the elements of the tables tell: by verdict, comment, or address."""

    def __init__(self, desired: DesiredTable, tables: Iterable[TableText]) -> None:
        self._desired = desired
        self._by_ip: dict[str, str] = {}
        for table in tables:
            for (name, key), value in table.elements.items():
                if name in ("service-ips", "no-endpoint-services"):
                    self._by_ip.setdefault(key.partition(" . ")[0], self._named(value))

    def owner(self, ref: ElementRef, value: ElementValue) -> str:
        """`namespace/name[:port]`, "" if it belongs to none."""
        return self._named(value) or (self._by_ip.get(ref[1], "") if ref[0] == "cluster-ips" else "")

    def _named(self, value: ElementValue) -> str:
        return value.comment or self._desired.owner_of_chain(value.value.removeprefix("goto "))
