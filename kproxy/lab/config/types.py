"""What a lab's file says, as values."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kproxy.api.document.tree import Document
from kproxy.lab.spec import BackendName, IpFamily, LabSpec, Mode, NodeSettings, Variant

API_VERSION: Final = "kproxy/v1"
KIND: Final = "Lab"
DEFAULT_NAME: Final = "lab"
DEFAULT_NODES: Final = 3
DEFAULT_TIMEOUT: Final = 120.0


class Choices(msgspec.Struct, frozen=True):
    """What both the command line and a file may say; None: not said. `timeout` is in seconds."""

    name: str | None = None
    nodes: int | None = None
    ip_family: IpFamily | None = None
    variant: Variant | None = None
    backend: BackendName | None = None
    mode: Mode | None = None
    timeout: float | None = None
    dns: bool | None = None

    def over(self, other: Choices) -> Choices:
        """These, and those of another where these say nothing."""
        chosen = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(other, **chosen)


NO_CHOICES: Final = Choices()


class HostCommand(msgspec.Struct, frozen=True):
    """A command for a shell in the network of a host: `client`, `fabric` or a node; when the lab is up."""

    host: str = ""
    run: str = ""


class GivenObject(msgspec.Struct, frozen=True):
    """A document of the file that is a manifest, and which of the file's it is."""

    number: int
    document: Document


class LabConfig(msgspec.Struct, frozen=True):
    """A lab's file, with what the command line says over it.

    Attributes:
        file: what messages call it; "" if there is none.
        proxy: the fields of a KubeProxyConfiguration.
        manifests: files and directories to apply.
        objects: the documents of the file that are manifests themselves.
        warnings: what is odd, and nothing wrong.
    """

    choices: Choices = NO_CHOICES
    file: str = ""
    settings: tuple[NodeSettings, ...] = ()
    mtu: int = 0
    pod_subnets: tuple[str, ...] = ()
    service_subnets: tuple[str, ...] = ()
    proxy: dict[str, Any] = {}
    manifests: tuple[str, ...] = ()
    commands: tuple[HostCommand, ...] = ()
    objects: tuple[GivenObject, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def timeout(self) -> float:
        """Seconds that everything may take."""
        return self.choices.timeout or DEFAULT_TIMEOUT

    @property
    def spec(self) -> LabSpec:
        """The lab that it asks for."""
        chosen = self.choices
        return LabSpec(
            chosen.name or DEFAULT_NAME,
            chosen.nodes or DEFAULT_NODES,
            chosen.ip_family or "ipv4",
            chosen.variant or "nft",
            chosen.backend or "vxlan",
            chosen.mode or "iptables",
            self.proxy,
            self.mtu,
            self.pod_subnets,
            self.service_subnets,
            self.settings,
            bool(chosen.dns),
        )
