"""What the kernel should hold in nftables mode: one family's table, and what of it belongs to which Service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kproxy.linux.nftables.ownership import service_of
from kproxy.linux.nftables.table import ElementRef, ElementValue, TableText
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
        origins: gives the origin of every object. Asked only when somebody wants to know.
    """

    family: IPFamily
    text: TableText
    owners: Mapping[str, str] = {}
    origins: Callable[[], TableOrigins] = TableOrigins

    def owner_of_chain(self, chain: str) -> str:
        """The Service port whose chain or affinity set it is; "" if it is none's."""
        return self.owners.get(chain) or service_of(chain)


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
        """`namespace/name[:port]`, "" if it is none's."""
        return self._named(value) or (self._by_ip.get(ref[1], "") if ref[0] == "cluster-ips" else "")

    def _named(self, value: ElementValue) -> str:
        return value.comment or self._desired.owner_of_chain(value.value.removeprefix("goto "))
