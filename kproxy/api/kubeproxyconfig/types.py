"""KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1 as frozen typed values.

`KubeProxyConfiguration()` is what kube-proxy v1.36 runs with when its configuration file says nothing. The fields are
the versioned type's own in snake case. Source of the defaults: SetDefaults_KubeProxyConfiguration in kube-proxy's
v1alpha1 package, and what a running kube-proxy answers on /configz. `decode` reads a file into these values, `validate`
says what kube-proxy would refuse in them, `configz` writes them as /configz does.

Some defaults stand for "zero or absent": a duration of 0s in iptables.syncPeriod is 30s to kube-proxy, and 0s in
iptables.minSyncPeriod is 1s. They are applied where a file is read; a value built by hand keeps what it was given.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from kproxy.api.addresses import canonical_cidr
from kproxy.api.kubeproxyconfig.duration import Duration, FlushFrequency

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"
CONFIG_KEYS: Final = ("config.conf", "config")
"""Where a ConfigMap has it: that of kubeadm, kind and minikube; that of EKS."""
CONFIG_MAPS: Final = ("kube-proxy", "kube-proxy-config")
"""The names of the ConfigMap: kubeadm's, kind's and minikube's; EKS's."""

HEALTHZ_PORT: Final = 10256
METRICS_PORT: Final = 10249

MODE_IPTABLES: Final = "iptables"
MODE_IPVS: Final = "ipvs"
MODE_NFTABLES: Final = "nftables"
MODE_KERNELSPACE: Final = "kernelspace"

LOCAL_CLUSTER_CIDR: Final = "ClusterCIDR"
LOCAL_NODE_CIDR: Final = "NodeCIDR"
LOCAL_BRIDGE_INTERFACE: Final = "BridgeInterface"
LOCAL_INTERFACE_NAME_PREFIX: Final = "InterfaceNamePrefix"

NODE_PORT_ADDRESSES_PRIMARY: Final = "primary"

NO_GATES: Final[Mapping[str, bool]] = MappingProxyType({})

_IRREGULAR: Final = {
    "cluster_cidr": "clusterCIDR",
    "exclude_cidrs": "excludeCIDRs",
    "strict_arp": "strictARP",
    "enable_dsr": "enableDSR",
}


def json_name(field: str) -> str:
    """The name of a field in a configuration file, e.g. "masqueradeBit" of "masquerade_bit"."""
    first, *others = field.split("_")
    return _IRREGULAR.get(field) or first + "".join(word.capitalize() for word in others)


Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
UInt32 = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
Float32 = Annotated[float, msgspec.Meta(ge=-3.4028234663852886e38, le=3.4028234663852886e38)]
_QUANTITY: Final = re.compile(
    r"(?P<number>[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?"
)


class Quantity(str):
    """A resource quantity such as "64Ki", as it was written."""

    __slots__ = ()

    @classmethod
    def of(cls, value: object) -> Quantity:
        """The quantity of a text or a number. Raises ValueError."""
        if isinstance(value, bool) or _QUANTITY.fullmatch(str(value)) is None:
            raise ValueError('must be a quantity such as "64Ki"')
        return cls(value)

    @property
    def is_zero(self) -> bool:
        """Whether it is zero, whatever its unit."""
        match = _QUANTITY.fullmatch(self)
        return match is not None and not match["number"].strip("+-0.")


IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class _Part(msgspec.Struct, frozen=True, rename=json_name):
    """The root of every part: its fields, in their order, carry the names that a file and /configz use."""


class ClientConnection(_Part, frozen=True):
    """How to reach the API server: ClientConnectionConfiguration of k8s.io/component-base. `qps` is a float32."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: Float32 = 5.0
    burst: Int32 = 10


class VModuleItem(_Part, frozen=True):
    """The log verbosity of the source files that `file_pattern` matches."""

    file_pattern: str = ""
    verbosity: UInt32 = 0


class OutputRouting(_Part, frozen=True):
    """Where a log format's lines go. `info_buffer_size` is a resource quantity as it was written ("0" when unset)."""

    split_stream: bool = False
    info_buffer_size: Quantity = Quantity("0")


class LoggingOptions(_Part, frozen=True):
    """Options of the two log formats."""

    text: OutputRouting = OutputRouting()
    json: OutputRouting = OutputRouting()


class Logging(_Part, frozen=True):
    """LoggingConfiguration of k8s.io/component-base; `format` is "text" or "json"."""

    format: str = "text"
    flush_frequency: FlushFrequency = FlushFrequency(5_000_000_000)
    verbosity: UInt32 = 0
    vmodule: tuple[VModuleItem, ...] = ()
    options: LoggingOptions = LoggingOptions()


class IPTables(_Part, frozen=True):
    """KubeProxyIPTablesConfiguration; `masquerade_bit` is a bit number in 0..31 of the packet mark."""

    masquerade_bit: Int32 = 14
    masquerade_all: bool = False
    localhost_node_ports: bool = True
    sync_period: Duration = Duration(30_000_000_000)
    min_sync_period: Duration = Duration(1_000_000_000)


class IPVS(_Part, frozen=True):
    """KubeProxyIPVSConfiguration."""

    sync_period: Duration = Duration(30_000_000_000)
    min_sync_period: Duration = Duration()
    scheduler: str = ""
    exclude_cidrs: tuple[str, ...] = ()
    strict_arp: bool = False
    tcp_timeout: Duration = Duration()
    tcp_fin_timeout: Duration = Duration()
    udp_timeout: Duration = Duration()


class NFTables(_Part, frozen=True):
    """KubeProxyNFTablesConfiguration."""

    masquerade_bit: Int32 = 14
    masquerade_all: bool = False
    sync_period: Duration = Duration(30_000_000_000)
    min_sync_period: Duration = Duration(1_000_000_000)


class Winkernel(_Part, frozen=True):
    """KubeProxyWinkernelConfiguration."""

    network_name: str = ""
    source_vip: str = ""
    enable_dsr: bool = False
    root_hns_endpoint_name: str = ""
    forward_health_check_vip: bool = False


class DetectLocal(_Part, frozen=True):
    """DetectLocalConfiguration: each field counts only under the detect-local mode of its name."""

    bridge_interface: str = ""
    interface_name_prefix: str = ""


class Conntrack(_Part, frozen=True):
    """KubeProxyConntrackConfiguration; a timeout of zero and `max_per_core` 0 leave the kernel's value alone."""

    max_per_core: Int32 = 32 * 1024
    min: Int32 = 128 * 1024
    tcp_established_timeout: Duration = Duration(24 * 3_600_000_000_000)
    tcp_close_wait_timeout: Duration = Duration(3_600_000_000_000)
    tcp_be_liberal: bool = False
    udp_timeout: Duration = Duration()
    udp_stream_timeout: Duration = Duration()


class KubeProxyConfiguration(_Part, frozen=True):
    """The whole configuration of kube-proxy.

    `mode` is "iptables", "ipvs", "nftables" or "kernelspace", `detect_local_mode` one of the LOCAL_ constants; neither
    is ever "" in a value that was read from a file. `cluster_cidr` is one CIDR, or one of each family with a comma
    between, or ""; it is checked only where the mode is ClusterCIDR, since kube-proxy reads it nowhere else.
    `node_port_addresses` holds CIDRs, or "primary" alone, as the file has it; `node_ports_on` is what counts.
    """

    feature_gates: Mapping[str, bool] = NO_GATES
    client_connection: ClientConnection = ClientConnection()
    logging: Logging = Logging()
    hostname_override: str = ""
    bind_address: str = "0.0.0.0"
    healthz_bind_address: str = f"0.0.0.0:{HEALTHZ_PORT}"
    metrics_bind_address: str = f"127.0.0.1:{METRICS_PORT}"
    bind_address_hard_fail: bool = False
    enable_profiling: bool = False
    show_hidden_metrics_for_version: str = ""
    mode: str = MODE_IPTABLES
    iptables: IPTables = IPTables()
    ipvs: IPVS = IPVS()
    nftables: NFTables = NFTables()
    winkernel: Winkernel = Winkernel()
    detect_local_mode: str = LOCAL_CLUSTER_CIDR
    detect_local: DetectLocal = DetectLocal()
    cluster_cidr: str = ""
    node_port_addresses: tuple[str, ...] = ()
    oom_score_adj: Int32 = -999
    conntrack: Conntrack = Conntrack()
    config_sync_period: Duration = Duration(15 * 60_000_000_000)
    port_range: str = ""
    windows_run_as_service: bool = False

    @property
    def proxier(self) -> IPTables | NFTables:
        """The section of the mode in use."""
        return self.nftables if self.mode == MODE_NFTABLES else self.iptables

    @property
    def masquerade_mark(self) -> int:
        """The packet mark that asks for masquerading: one bit, e.g. 0x4000."""
        return 1 << self.proxier.masquerade_bit

    @property
    def node_ports_on(self) -> tuple[str, ...]:
        """`node_port_addresses` with the mode's default: "primary" in nftables mode, else () for every address.

        Source: platformApplyDefaults in kube-proxy's cmd/kube-proxy/app/server_linux.go.
        """
        if self.mode == MODE_NFTABLES and not self.node_port_addresses:
            return (NODE_PORT_ADDRESSES_PRIMARY,)
        return self.node_port_addresses

    @property
    def node_ports_on_primary_only(self) -> bool:
        """Whether node ports answer on the Node object's primary addresses alone."""
        return self.node_ports_on == (NODE_PORT_ADDRESSES_PRIMARY,)


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration that was read, and what kube-proxy or kproxy would remark about it without refusing it.
    `given` is the document itself, whose fields are those that are set in it."""

    config: KubeProxyConfiguration
    warnings: tuple[str, ...] = ()
    given: Mapping[str, Any] = {}


def parse_network(text: str) -> IPNetwork:
    """The network of a CIDR, host bits cleared as Go's ParseCIDR does; ValueError if the CIDR is invalid."""
    canonical = canonical_cidr(text)
    if canonical is None:
        raise ValueError(f"invalid CIDR address: {text}")
    return ipaddress.ip_network(canonical, strict=False)
