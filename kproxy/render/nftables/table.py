"""A rendered table: as `nft -f` input, one object a line, and object by object with its provenance.

It holds no text of its own: the renderer's objects are written when asked for. What is compared with the kernel is
`linux.nftables.table.TableText`; what packets are evaluated against is a table of `netfilter.nftables`.

Order: the table, chains, sets, maps, rules by chain, elements by set or map; each sorted by name. So whatever is named
is there when it is named, and nft can load the text as it stands.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kproxy.render.nftables.names import TABLE, nft_family
from kproxy.render.nftables.renderer import Renderer
from kproxy.render.nftables.serviceport import ElementValue
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin, RenderedObject
from kproxy.services.tracker import ServiceState


class RenderedTable(msgspec.Struct, frozen=True):
    """The table of one family on one node.

    Attributes:
        state: the ServicePorts and endpoints it came from.
        renderer: holds its objects.
    """

    state: ServiceState
    renderer: Renderer

    @classmethod
    def of(cls, state: ServiceState, options: RenderOptions) -> RenderedTable:
        """Rendered from scratch."""
        renderer = Renderer(options)
        renderer.render(state)
        return cls(state, renderer)

    @property
    def options(self) -> RenderOptions:
        return self.renderer.options

    @property
    def table(self) -> str:
        """The table as nft names it: `ip kube-proxy`."""
        return f"{nft_family(self.options.family)} {TABLE}"

    @property
    def restore_text(self) -> str:
        """Input for `nft -f` where there is no such table yet."""
        return "".join(text for _, _, _, text in self._lines())

    def save_text(self, release: str = "1.0.6") -> str:
        """What `nft list table` of a release prints once the table is in; see `kproxy.render.nftables.save`."""
        # Imported here: restore text alone does not need the parser.
        from kproxy.render.nftables.save import save_text

        return save_text(self.restore_text, release)

    def rule_origins(self) -> dict[tuple[str, str], list[Origin]]:
        """The provenance of every rule: by table (`ip kube-proxy`) and chain, in order."""
        return {(self.table, chain): found for chain, found in self.renderer.origins(self.state).rules.items()}

    def objects(self) -> Iterator[RenderedObject]:
        """Every object with its provenance, in the order of `restore_text`."""
        base = self.renderer.base
        found = self.renderer.origins(self.state)
        owners = {chain: origins[0].service_port for chain, origins in found.rules.items()}
        why = {**base.chains, **base.sets, **base.maps}
        for kind, name, key, text in self._lines():
            number = 0
            if kind == "rule":
                number = int(key)
                origin = found.rules[name][number - 1]
            elif kind == "element":
                origin = found.elements.get((name, key)) or Origin("base element: address of the node")
            elif kind == "set" and name in found.sets:
                origin = found.sets[name]
            elif kind == "chain" and owners.get(name) is not None:
                origin = Origin("chain", owners[name])
            else:
                origin = Origin(f"base {kind}: {why[name][1] if name in why else 'all that kube-proxy writes'}")
            container = self._container(kind, name)
            yield RenderedObject(kind, container, name, number, text.rstrip("\n"), origin)

    def _container(self, kind: str, name: str) -> str:
        if kind == "element":
            return "map" if name in self.renderer.base.maps else "set"
        return "chain" if kind == "rule" else kind

    def _lines(self) -> Iterator[tuple[str, str, str, str]]:
        """Kind, name, number of a rule or key of an element, and line of each object."""
        table, base = self.table, self.renderer.base
        yield "table", TABLE, "", _line(f"add table {table}", base.table)
        chains = self.renderer.chains()
        names = sorted(chains)
        for name in names:
            yield "chain", name, "", _line(f"add chain {table} {name}", base.chains.get(name, _NO_DEFINITION)[0])
        sets = {name: definition for name, (definition, _) in base.sets.items()} | self.renderer.affinity_sets()
        for name, definition in sorted(sets.items()):
            yield "set", name, "", f"add set {table} {name} {definition}\n"
        for name, (definition, _) in sorted(base.maps.items()):
            yield "map", name, "", f"add map {table} {name} {definition}\n"
        for name in names:
            for number, text in enumerate(chains[name], 1):
                yield "rule", name, str(number), f"add rule {table} {name} {text}\n"
        for (name, key), element in sorted(self.renderer.elements().items()):
            yield "element", name, key, f"add element {table} {name} {{ {element_text(key, element)} }}\n"


def element_text(key: str, element: ElementValue) -> str:
    """An element as nft writes it: key, comment, verdict."""
    comment = f' comment "{element.comment}"' if element.comment else ""
    return f"{key}{comment} : {element.value}" if element.value else f"{key}{comment}"


_NO_DEFINITION = ("", "")


def _line(command: str, definition: str) -> str:
    return f"{command} {definition}\n" if definition else f"{command}\n"
