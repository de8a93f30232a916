"""kube-proxy's flags and configuration file, and kproxy's own options, as one value.

As in kube-proxy, a configuration file overrides flags: with `--config`, the flags that a file has a field for are
ignored (and a note says so), except `--hostname-override`. Without one, the flags become the fields of a configuration,
which is read, defaulted and validated like a file.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kproxy.api.config import API_VERSION, KIND, KubeProxyConfiguration
from kproxy.api.config_decode import ConfigError, ConfigProblem, decode_config, load_config
from kproxy.errors import InputError, Location
from kproxy.linux.binaries import Variant
from kproxy.linux.lock import DEFAULT_WAIT
from kproxy.render import Features
from kproxy.services import IPFamily

COMMAND_LINE: Final = "command line"

TEXT, INTEGER, BOOLEAN, NUMBER, DURATION, LIST, GATES = (
    "text", "integer", "boolean", "number", "duration", "list", "gates",
)  # fmt: skip


class Flag(msgspec.Struct, frozen=True):
    """A flag of kube-proxy that stands for a field of its configuration."""

    name: str
    field: str
    kind: str
    help: str


FLAGS: Final = (
    Flag("bind-address", "bindAddress", TEXT, "The proxy's own address, for the primary family."),
    Flag("bind-address-hard-fail", "bindAddressHardFail", BOOLEAN, "End if a port cannot be bound."),
    Flag("cluster-cidr", "clusterCIDR", TEXT, "The pods' CIDR, one of each family."),
    Flag("config-sync-period", "configSyncPeriod", DURATION, "How often everything known is looked at again."),
    Flag("conntrack-max-per-core", "conntrack.maxPerCore", INTEGER, "Connections to track for each CPU; 0: as it is."),
    Flag("conntrack-min", "conntrack.min", INTEGER, "Connections to track at least."),
    Flag("conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", BOOLEAN, "Do not drop INVALID packets."),
    Flag("conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout", DURATION, "0: as it is."),
    Flag("conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout", DURATION, "0: as it is."),
    Flag("conntrack-udp-timeout", "conntrack.udpTimeout", DURATION, "0: as it is."),
    Flag("conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", DURATION, "0: as it is."),
    Flag("detect-local-mode", "detectLocalMode", TEXT, "ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix."),
    Flag("feature-gates", "featureGates", GATES, "NAME=true|false, separated by commas."),
    Flag("healthz-bind-address", "healthzBindAddress", TEXT, "Where /healthz and /livez answer; empty: nowhere."),
    Flag("iptables-localhost-nodeports", "iptables.localhostNodePorts", BOOLEAN, "Node ports on 127.0.0.0/8."),
    Flag("iptables-masquerade-bit", "iptables.masqueradeBit", INTEGER, "The bit of the masquerade mark."),
    Flag("iptables-min-sync-period", "iptables.minSyncPeriod", DURATION, "Syncs are no closer than this, as in 1s."),
    Flag("iptables-sync-period", "iptables.syncPeriod", DURATION, "The kernel is checked this often, as in 30s."),
    Flag("kube-api-burst", "clientConnection.burst", INTEGER, "Accepted; requests of one node need no limit."),
    Flag("kube-api-content-type", "clientConnection.contentType", TEXT, "Accepted; kproxy speaks JSON."),
    Flag("kube-api-qps", "clientConnection.qps", NUMBER, "Accepted; requests of one node need no limit."),
    Flag("kubeconfig", "clientConnection.kubeconfig", TEXT, "The API server and credentials."),
    Flag("log-flush-frequency", "logging.flushFrequency", DURATION, "Accepted; logs are written at once."),
    Flag("logging-format", "logging.format", TEXT, "text or json."),
    Flag("masquerade-all", "iptables.masqueradeAll", BOOLEAN, "Masquerade all traffic to cluster IPs."),
    Flag("metrics-bind-address", "metricsBindAddress", TEXT, "Where /metrics and debug pages answer; empty: nowhere."),
    Flag("nodeport-addresses", "nodePortAddresses", LIST, "CIDRs, or primary: the addresses that have node ports."),
    Flag("oom-score-adj", "oomScoreAdj", INTEGER, "Of this process, from -1000 to 1000."),
    Flag("pod-bridge-interface", "detectLocal.bridgeInterface", TEXT, "For detect-local-mode BridgeInterface."),
    Flag("pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", TEXT, "For InterfaceNamePrefix."),
    Flag("profiling", "enableProfiling", BOOLEAN, "Accepted; there is no Go profiler."),
    Flag("proxy-mode", "mode", TEXT, "iptables."),
    Flag("proxy-port-range", "portRange", TEXT, "Accepted; nothing uses it, as in kube-proxy."),
    Flag("show-hidden-metrics-for-version", "showHiddenMetricsForVersion", TEXT, "Accepted; nothing is hidden."),
    Flag("v", "logging.verbosity", INTEGER, "Log verbosity; 4 and more shows syncs that did nothing."),
)  # fmt: skip

BY_FIELD: Final = {flag.field: flag.name for flag in FLAGS}


class Settings(msgspec.Struct, frozen=True):
    """What `kproxy run` was asked to do.

    Attributes:
        config: the configuration, flags included.
        config_path: the file it came from; "" for none. A change of it ends the agent, as with kube-proxy.
        node_name: this node, as kube-proxy determines it.
        master: URL of the API server, over that of the kubeconfig; "" for none.
        context: of the kubeconfig; "" for the current one.
        netns: the namespace to program; None is the machine's own.
        variant: None for auto.
        families: those that must work; both if empty, as far as the host has them.
        filenames: manifests instead of an API server.
        use_endpoints: watch Endpoints instead of EndpointSlices.
        once: end when the kernel holds the rules.
        min_sync_period, sync_period: seconds.
    """

    config: KubeProxyConfiguration
    node_name: str
    config_path: str = ""
    master: str = ""
    context: str = ""
    netns: str | None = None
    variant: Variant | None = None
    families: tuple[IPFamily, ...] = ()
    features: Features = Features(nfacct=True)
    lock_wait: float = DEFAULT_WAIT
    filenames: tuple[str, ...] = ()
    use_endpoints: bool = False
    once: bool = False

    @property
    def min_sync_period(self) -> float:
        return self.config.iptables.min_sync_period.seconds

    @property
    def sync_period(self) -> float:
        return self.config.iptables.sync_period.seconds


class ReadOptions(msgspec.Struct, frozen=True):
    """A configuration, and what to tell the user about it."""

    config: KubeProxyConfiguration
    notes: tuple[str, ...] = ()


def read_options(config_path: str | None, flags: Mapping[str, str]) -> ReadOptions:
    """The configuration of a file or of flags.

    Args:
        flags: the texts of the flags that were given, by name without dashes.

    Raises:
        ConfigError: what is wrong with either.
        InputError: a mode that is not iptables.
    """
    if config_path is not None:
        loaded = load_config(config_path)
        config, notes = loaded.config, list(loaded.warnings)
        ignored = [f"--{name}" for name in flags if name != "v"]
        if ignored:
            notes.append(f"{', '.join(ignored)}: ignored, because --config is given (kube-proxy does the same)")
    else:
        data = msgspec.json.encode(_document(flags))
        try:
            loaded = decode_config(data, COMMAND_LINE)
        except ConfigError as error:
            raise ConfigError(tuple(_as_flag(problem) for problem in error.problems)) from error
        config, notes = loaded.config, list(loaded.warnings)
    if config.mode != "iptables":
        raise InputError(f"proxy mode {config.mode!r}: kproxy writes iptables rules only")
    return ReadOptions(config, tuple(notes))


def node_name(node: str | None, hostname_override: str | None, config: KubeProxyConfiguration) -> str:
    """This node's name: --node, --hostname-override, hostnameOverride, else the host name, trimmed and in lower case.

    Raises:
        InputError: it is empty.
    """
    name = node or hostname_override or config.hostname_override or socket.gethostname()
    name = name.strip().lower()
    if not name:
        raise InputError("the node's name is empty: say which with --node")
    return name


def _document(flags: Mapping[str, str]) -> dict[str, Any]:
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    problems = []
    for flag in FLAGS:
        if flag.name not in flags:
            continue
        *parents, last = flag.field.split(".")
        part = document
        for parent in parents:
            part = part.setdefault(parent, {})
        try:
            part[last] = _value(flag, flags[flag.name])
        except ValueError as error:
            problems.append(ConfigProblem(Location(COMMAND_LINE, 0, f"--{flag.name}"), str(error)))
    if problems:
        raise ConfigError(tuple(problems))
    return document


def _value(flag: Flag, text: str) -> object:
    match flag.kind:
        case "integer":
            try:
                return int(text)
            except ValueError:
                raise ValueError(f"{text!r} is not an integer") from None
        case "number":
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a number") from None
        case "boolean":
            return _boolean(text)
        case "list":
            return [part.strip() for part in text.split(",") if part.strip()]
        case "gates":
            gates = {}
            for part in filter(None, text.split(",")):
                name, equals, value = part.partition("=")
                if not equals:
                    raise ValueError(f"{part!r} is not NAME=true or NAME=false")
                gates[name.strip()] = _boolean(value.strip())
            return gates
    return text


def _boolean(text: str) -> bool:
    """As Go's strconv.ParseBool."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _as_flag(problem: ConfigProblem) -> ConfigProblem:
    """The flag in place of the field it stands for."""
    field = problem.location.field.removeprefix("KubeProxyConfiguration.").partition("[")[0]
    name = BY_FIELD.get(field)
    if name is None:
        return problem
    return ConfigProblem(Location(COMMAND_LINE, 0, f"--{name}"), problem.message)


def split_address(text: str, default_port: int) -> tuple[str, int] | None:
    """Host and port of a bind address, which validation has seen; None for "", which is nowhere."""
    if not text:
        return None
    host, _, port = text.rpartition(":")
    return host.strip("[]") or "0.0.0.0", int(port) if port.isdigit() else default_port
