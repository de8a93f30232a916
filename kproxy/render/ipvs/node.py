"""What IPVS mode makes of a node, as the texts that load it and object by object with its provenance.

The rules of `restore_text` ask the sets of `ipset_text`, which has to be loaded first. Addresses go on `kube-ipvs0`,
virtual servers into the kernel by `ipvsadm -R`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

import msgspec

from kproxy.netfilter.ipvs.server import RealServer, VirtualServer
from kproxy.render.iptables.base import jump_origins
from kproxy.render.iptables.serviceport import ChainRef
from kproxy.render.ipvs.renderer import DEVICE, IpvsState, render_state
from kproxy.render.ipvs.rules import JUMP_RULES, Line, restore_text, rules
from kproxy.render.options import RenderOptions
from kproxy.render.origin import Origin, RenderedObject, RenderedRule
from kproxy.services.tracker import ServiceState

if TYPE_CHECKING:
    from kproxy.netfilter import Ruleset


class RenderedIpvs(msgspec.Struct, frozen=True):
    """All of one family on one node.

    Attributes:
        state: the ServicePorts and endpoints it came from.
        made: virtual servers, members of sets, and addresses.
        lines: the iptables rules, jumps to kube-proxy's chains aside.
    """

    state: ServiceState
    options: RenderOptions
    made: IpvsState
    lines: tuple[Line, ...]

    @classmethod
    def of(cls, state: ServiceState, options: RenderOptions) -> RenderedIpvs:
        """Rendered from scratch."""
        made = render_state(state, options)
        return cls(state, options, made, tuple(rules(made, options)))

    @property
    def restore_text(self) -> str:
        """One text for `iptables-restore --noflush`."""
        return restore_text(self.lines)

    @property
    def save_text(self) -> str:
        """What iptables-save prints in a fresh namespace once the rules are in."""
        # Imported here: restore text alone does not need the parser.
        from kproxy.netfilter import print_save

        return print_save(self.saved)

    @property
    def saved(self) -> Ruleset:
        """The same as values."""
        from kproxy.render.iptables.save import jump_text, saved_ruleset

        return saved_ruleset(self.restore_text, self.options.family, jump_text(JUMP_RULES, ()))

    def spares(self, server: VirtualServer) -> bool:
        """Whether excludeCIDRs spares a virtual server that is not kube-proxy's."""
        networks = map(partial(ip_network, strict=False), self.options.ipvs.exclude_cidrs)
        return any(ip_address(server.address) in network for network in networks)

    @property
    def servers(self) -> dict[VirtualServer, tuple[RealServer, ...]]:
        """The virtual servers and their real servers as values."""
        return {each.server: tuple(real for real, _ in each.real) for each in self.made.servers.values()}

    @property
    def ipset_text(self) -> str:
        """The sets for `ipset restore`."""
        return _text(each.text for each in self._sets())

    @property
    def ipvsadm_text(self) -> str:
        """The virtual servers for `ipvsadm -R`."""
        return _text(each.text for each in self._servers())

    @property
    def addresses_text(self) -> str:
        """A line for each address: it, its prefix, and the device it is on."""
        return _text(each.text for each in self._addresses())

    def rule_origins(self) -> dict[ChainRef, list[Origin]]:
        """The provenance of every rule of the save form: by table and chain, in order."""
        origins = jump_origins(JUMP_RULES)
        for line in self.lines:
            origins.setdefault((line.table, line.chain), []).append(line.origin)
        return origins

    def rules(self) -> Iterator[RenderedRule]:
        """Every rule of the save form with its provenance, in order."""
        from kproxy.render.iptables.save import rendered_rules

        yield from rendered_rules(self.saved, self.rule_origins())

    def objects(self) -> Iterator[RenderedObject]:
        """All besides the rules, with its provenance: sets, virtual servers, addresses, settings."""
        yield from self._sets()
        yield from self._servers()
        yield from self._addresses()
        for name, value, why in self._sysctls():
            yield RenderedObject("sysctl", "", name, 0, f"{name} = {value}", Origin(f"base sysctl: {why}"))
        ipvs = self.options.ipvs
        timeouts = (ipvs.tcp_timeout, ipvs.tcp_fin_timeout, ipvs.udp_timeout)
        if any(timeouts):
            text = f"--set {' '.join(str(int(each.seconds)) for each in timeouts)}"
            why = "base timeouts: seconds without a packet: of TCP, of TCP after a FIN, of UDP; 0 leaves the kernel's"
            yield RenderedObject("timeouts", "", "", 0, text, Origin(why))
        for cidr in ipvs.exclude_cidrs:
            why = "base setting: virtual servers in it that are not kube-proxy's stay (excludeCIDRs)"
            yield RenderedObject("excluded network", "", "", 0, cidr, Origin(why))

    def _sets(self) -> Iterator[RenderedObject]:
        family = self.options.family
        for found, members in self.made.members.items():
            name = found.name_in(family)
            yield RenderedObject("set", "set", name, 0, found.create(family), Origin(f"base set: {found.comment}"))
            for member, origin in members.items():
                yield RenderedObject("element", "set", name, 0, f"add {name} {member}", origin)

    def _servers(self) -> Iterator[RenderedObject]:
        for name, served in self.made.servers.items():
            server, where = served.server, ("virtual server", name, 0)
            yield RenderedObject("virtual server", *where, server.line, served.origin)
            for real, origin in served.real:
                yield RenderedObject("real server", *where, real.line(server), origin)

    def _addresses(self) -> Iterator[RenderedObject]:
        bits = self.options.family.bits
        for ip, origin in self.made.addresses.items():
            yield RenderedObject("address", "device", DEVICE, 0, f"{ip}/{bits} dev {DEVICE}", origin)

    def _sysctls(self) -> Iterator[tuple[str, int, str]]:
        """What kube-proxy sets, and why; of both families, since IPVS has no others."""
        yield "net.ipv4.vs.conntrack", 1, "IPVS keeps conntrack's entries, so that iptables can masquerade"
        yield "net.ipv4.vs.expire_nodest_conn", 1, "a connection whose real server is gone ends"
        yield "net.ipv4.vs.expire_quiescent_template", 1, "a client does not keep a real server of weight 0"
        yield "net.ipv4.ip_forward", 1, "the node forwards"
        if self.options.ipvs.strict_arp:
            yield "net.ipv4.conf.all.arp_ignore", 1, f"no answers for addresses of {DEVICE} (strictARP)"
            yield "net.ipv4.conf.all.arp_announce", 2, f"no ARP with addresses of {DEVICE} as source (strictARP)"


def _text(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
