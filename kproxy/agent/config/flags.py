"""The flags of kube-proxy v1.36: their names, what they stand for, and how their values are written.

Source: AddFlags in kubernetes/kubernetes cmd/kube-proxy/app/options.go, and AddFlags of component-base's logs/api/v1.
Each flag is here, with the field of the configuration that it stands for, or with the reason why it changes nothing.
Flags that kube-proxy has no longer (klog's), or on Windows only, are unknown.
"""

from __future__ import annotations

from typing import Final

import msgspec

TEXT, INTEGER, BOOLEAN, NUMBER, DURATION, LIST, GATES, VMODULE = (
    "text", "integer", "boolean", "number", "duration", "list", "gates", "pattern=n",
)  # fmt: skip

ACCUMULATE: Final = (LIST, GATES, VMODULE)
"""Kinds of which a flag may be given several times, and all of them count; of others the last counts, as in pflag."""

OTHER_MODE: Final = "it is for ipvs mode, which kproxy run does not have"


class Flag(msgspec.Struct, frozen=True):
    """A flag of kube-proxy.

    Attributes:
        field: the field of the configuration that it stands for, "" for none.
        no_effect: why it changes nothing here, although it is accepted; "" if it counts.
    """

    name: str
    field: str
    kind: str
    help: str = ""
    no_effect: str = ""

    @property
    def is_logging(self) -> bool:
        """Whether it counts beside a configuration file (copyLogsFromFlags)."""
        return self.field.startswith("logging.")


_DEVICE: Final = "kproxy reads no such file"
_NO_LIMIT: Final = "requests of one node need no limit"
_STREAM: Final = "logs go to stderr"

FLAGS: Final = (
    Flag("bind-address", "bindAddress", TEXT, "The proxy's own address, for the primary family."),
    Flag("bind-address-hard-fail", "bindAddressHardFail", BOOLEAN, "End if a port cannot be bound."),
    Flag("boot-id-file", "", TEXT, no_effect=_DEVICE),
    Flag("cluster-cidr", "clusterCIDR", TEXT, "The pods' CIDR, one of each family."),
    Flag("config-sync-period", "configSyncPeriod", DURATION, no_effect="a watch misses nothing"),
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
    Flag("healthz-port", "", INTEGER, "Deprecated: the port, if --healthz-bind-address has none; 0: nowhere."),
    Flag("iptables-localhost-nodeports", "iptables.localhostNodePorts", BOOLEAN, "Node ports on 127.0.0.0/8."),
    Flag("iptables-masquerade-bit", "iptables.masqueradeBit", INTEGER, "The bit of the masquerade mark."),
    Flag("iptables-min-sync-period", "iptables.minSyncPeriod", DURATION, "Syncs are no closer than this, as in 1s."),
    Flag("iptables-sync-period", "iptables.syncPeriod", DURATION, "The kernel is checked this often, as in 30s."),
    Flag("ipvs-exclude-cidrs", "ipvs.excludeCIDRs", LIST, no_effect=OTHER_MODE),
    Flag("ipvs-min-sync-period", "ipvs.minSyncPeriod", DURATION, no_effect=OTHER_MODE),
    Flag("ipvs-scheduler", "ipvs.scheduler", TEXT, no_effect=OTHER_MODE),
    Flag("ipvs-strict-arp", "ipvs.strictARP", BOOLEAN, no_effect=OTHER_MODE),
    Flag("ipvs-sync-period", "ipvs.syncPeriod", DURATION, no_effect=OTHER_MODE),
    Flag("ipvs-tcp-timeout", "ipvs.tcpTimeout", DURATION, no_effect=OTHER_MODE),
    Flag("ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", DURATION, no_effect=OTHER_MODE),
    Flag("ipvs-udp-timeout", "ipvs.udpTimeout", DURATION, no_effect=OTHER_MODE),
    Flag("kube-api-burst", "clientConnection.burst", INTEGER, no_effect=_NO_LIMIT),
    Flag("kube-api-content-type", "clientConnection.contentType", TEXT, no_effect="kproxy speaks JSON"),
    Flag("kube-api-qps", "clientConnection.qps", NUMBER, no_effect=_NO_LIMIT),
    Flag("kubeconfig", "clientConnection.kubeconfig", TEXT, "The API server and credentials."),
    Flag("log-flush-frequency", "logging.flushFrequency", DURATION, no_effect="logs are written at once"),
    Flag("log-json-info-buffer-size", "logging.options.json.infoBufferSize", TEXT, no_effect=_STREAM),
    Flag("log-json-split-stream", "logging.options.json.splitStream", BOOLEAN, no_effect=_STREAM),
    Flag("log-text-info-buffer-size", "logging.options.text.infoBufferSize", TEXT, no_effect=_STREAM),
    Flag("log-text-split-stream", "logging.options.text.splitStream", BOOLEAN, no_effect=_STREAM),
    Flag("logging-format", "logging.format", TEXT, "text or json."),
    Flag("machine-id-file", "", TEXT, no_effect=_DEVICE),
    Flag("masquerade-all", "iptables.masqueradeAll", BOOLEAN, "Masquerade all traffic to cluster IPs."),
    Flag("metrics-bind-address", "metricsBindAddress", TEXT, "Where /metrics and debug pages answer; empty: nowhere."),
    Flag("metrics-port", "", INTEGER, "Deprecated: the port, if --metrics-bind-address has none; 0: nowhere."),
    Flag("nodeport-addresses", "nodePortAddresses", LIST, "CIDRs, or primary: the addresses that have node ports."),
    Flag("oom-score-adj", "oomScoreAdj", INTEGER, "Of this process, from -1000 to 1000."),
    Flag("pod-bridge-interface", "detectLocal.bridgeInterface", TEXT, "For detect-local-mode BridgeInterface."),
    Flag("pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", TEXT, "For InterfaceNamePrefix."),
    Flag("profiling", "enableProfiling", BOOLEAN, no_effect="there is no Go profiler"),
    Flag("proxy-mode", "mode", TEXT, "iptables or nftables."),
    Flag("proxy-port-range", "portRange", TEXT, no_effect="nothing uses it, in kube-proxy either"),
    Flag("show-hidden-metrics-for-version", "showHiddenMetricsForVersion", TEXT, no_effect="no metric is hidden"),
    Flag("v", "logging.verbosity", INTEGER, "Log verbosity; 4 and more shows syncs that did nothing."),
    Flag("vmodule", "logging.vmodule", VMODULE, no_effect="kproxy has no Go source files"),
)  # fmt: skip

BY_NAME: Final = {flag.name: flag for flag in FLAGS}
BY_FIELD: Final = {flag.field: flag.name for flag in FLAGS if flag.field}


def parse_value(flag: Flag, text: str) -> object:
    """The value of a flag as a configuration file holds it. Raises ValueError, which says what is wrong.

    Texts and durations stay texts: the configuration's reader parses them.
    """
    match flag.kind:
        case "integer":
            return _integer(text)
        case "number":
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a number") from None
        case "boolean":
            return parse_boolean(text)
        case "list":
            return [part.strip() for part in text.split(",") if part.strip()]
        case "gates":
            return _gates(text)
        case "pattern=n":
            return [_module(part) for part in text.split(",") if part]
    return text


def parse_boolean(text: str) -> bool:
    """As Go's strconv.ParseBool. Raises ValueError."""
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not an integer") from None


def _gates(text: str) -> dict[str, bool]:
    gates = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not NAME=true or NAME=false")
        gates[name.strip()] = parse_boolean(value.strip())
    return gates


def _module(part: str) -> dict[str, object]:
    pattern, _, level = part.partition("=")
    if not pattern or not level.isdecimal():
        raise ValueError(f"{part!r} does not have the pattern=N format")
    return {"filePattern": pattern, "verbosity": int(level)}
