"""Virtual servers and their real servers, as ipvsadm writes them (`ipvsadm -Sn`, which `ipvsadm -R` loads)."""

from __future__ import annotations

from typing import Final

import msgspec

from kproxy.family import join_host_port

PROTOCOL_OPTIONS: Final = {"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}
"""The option by which ipvsadm names a virtual server of a protocol."""

MASQUERADE: Final = "m"
FORWARDING: Final = {"Masq": MASQUERADE, "Route": "g", "Tunnel": "i", "Local": MASQUERADE}
"""How packets are forwarded, as listings say it, and the option of ipvsadm that makes it so. `Local` is the kernel's
word for an address of the host itself, however it was added."""

UNTOLD: Final = -1
"""Stands for a number that the text does not tell."""


class VirtualServer(msgspec.Struct, frozen=True):
    """An address, protocol and port whose connections IPVS gives to real servers.

    Attributes:
        protocol: tcp, udp or sctp.
        scheduler: `rr`, `wrr`, `lc`, `sh`, `mh`, ...; "" where the text does not tell.
        persistence: for how many seconds a client keeps its real server; 0 if it does not; UNTOLD if it may, or does
            for a time that the text does not tell.
        flags: of the scheduler, `mh-port` say, as ipvsadm names them.
    """

    protocol: str
    address: str
    port: int
    scheduler: str = "rr"
    persistence: int = 0
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How ipvsadm names it: `-t 10.96.0.1:443`."""
        return f"{PROTOCOL_OPTIONS[self.protocol]} {join_host_port(self.address, self.port)}"

    @property
    def line(self) -> str:
        """The line that makes it."""
        persistence = f" -p {self.persistence}" if self.persistence else ""
        flags = f" -b {','.join(self.flags)}" if self.flags else ""
        return f"-A {self.name} -s {self.scheduler}{persistence}{flags}"


class RealServer(msgspec.Struct, frozen=True):
    """Where IPVS sends connections of a virtual server.

    Attributes:
        weight: 0 means that no new connection is sent there; UNTOLD where the text has none.
        forwarding: m (destination rewritten, the only way that kube-proxy uses), g (to the next hop) or i (tunnel);
            "" where the text does not tell.
        active, inactive: how many connections it has, or UNTOLD.
    """

    address: str
    port: int
    weight: int = 1
    forwarding: str = MASQUERADE
    active: int = UNTOLD
    inactive: int = UNTOLD

    def line(self, of: VirtualServer) -> str:
        """The line that adds it to a virtual server."""
        return f"-a {of.name} -r {join_host_port(self.address, self.port)} -{self.forwarding} -w {self.weight}"
