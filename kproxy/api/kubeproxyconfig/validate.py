"""What kube-proxy v1.36 refuses in a KubeProxyConfiguration.

One function per group of fields; each yields a `FieldError` per fault, so that all are reported at once. The checks and
their wording are those of kube-proxy's package pkg/proxy/apis/config/validation and, for `logging`, of
k8s.io/component-base/logs/api. The path differs on purpose: kube-proxy names the fields of its internal type
(KubeProxyConfiguration.KubeProxyIPTablesConfiguration.MasqueradeBit), a `FieldError` the field that stands in the file
(iptables.masqueradeBit). Values are printed as Kubernetes v1.36 prints them: numbers and booleans plainly, all else as
JSON, so that a duration has quotes.

Addresses follow k8s.io/utils/net: leading zeros of IPv4 numbers are decimal, and an IPv6 zone is no address.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from kproxy.api.addresses import canonical_cidr, canonical_ip
from kproxy.api.fielderror import FieldError, forbidden, invalid, not_listed, required, show
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.features import STAGES
from kproxy.api.kubeproxyconfig.types import (
    IPVS,
    LOCAL_BRIDGE_INTERFACE,
    LOCAL_CLUSTER_CIDR,
    LOCAL_INTERFACE_NAME_PREFIX,
    LOCAL_NODE_CIDR,
    MODE_IPTABLES,
    MODE_IPVS,
    MODE_KERNELSPACE,
    MODE_NFTABLES,
    NODE_PORT_ADDRESSES_PRIMARY,
    Conntrack,
    IPTables,
    KubeProxyConfiguration,
    Logging,
    NFTables,
    json_name,
    parse_network,
)

PREVIOUS_MINOR: Final = "1.35"
MODES: Final = (MODE_IPTABLES, MODE_IPVS, MODE_NFTABLES, MODE_KERNELSPACE)
LOCAL_MODES: Final = (LOCAL_CLUSTER_CIDR, LOCAL_NODE_CIDR, LOCAL_BRIDGE_INTERFACE, LOCAL_INTERFACE_NAME_PREFIX, "")

_INT32_MAX: Final = 2**31 - 1
_ONE_OR_PAIR: Final = (
    "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]"
)
_PORT_RANGE: Final = re.compile(r"(?P<low>[0-9]+)(?:(?P<separator>[-+])(?P<second>[0-9]+))?")


def field_path(path: str) -> str:
    """The path as it is reported: below the name of the kind."""
    return f"KubeProxyConfiguration.{path}" if path else "KubeProxyConfiguration"


def unsupported(path: str, value: object, supported: tuple[str, ...]) -> FieldError:
    """A value outside an enumeration, whose choices kube-proxy lists in their order."""
    return not_listed(path, show(value), ", ".join(map(show, supported)))


def validate_config(config: KubeProxyConfiguration) -> tuple[FieldError, ...]:
    """Everything that kube-proxy would refuse in `config`, which must have its defaults; () when it would start."""
    return (
        *_feature_gates(config.feature_gates),
        *_masquerade_bits(config),
        *_sync_periods(config),
        *_ipvs(config),
        *_not_negative("conntrack", config.conntrack, *Conntrack.__struct_fields__),
        *_single_values(config),
        *_addresses(config),
        *_node_port_addresses(config.node_port_addresses),
        *_detect_local(config),
        *_logging(config.logging, config.feature_gates),
    )


def _feature_gates(gates: Mapping[str, bool]) -> Iterator[FieldError]:
    """One error for all: each would repeat the whole map."""
    unknown = [f"unrecognized feature gate: {name}" for name in sorted(gates) if name not in STAGES]
    if unknown:
        detail = ", ".join(unknown)
        yield invalid("featureGates", dict(sorted(gates.items())), detail if len(unknown) == 1 else f"[{detail}]")


def _masquerade_bits(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    for part in ("iptables", "nftables") if config.mode == MODE_NFTABLES else ("iptables",):
        bit = getattr(config, part).masquerade_bit
        if not 0 <= bit <= 31:
            yield invalid(f"{part}.masqueradeBit", bit, "must be within the range [0, 31]")


def _sync_periods(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    """kube-proxy has one pair of periods: that of the mode it runs in; the others are not looked at."""
    name = config.mode if config.mode in (MODE_IPVS, MODE_NFTABLES) else "iptables"
    part: IPTables | IPVS | NFTables = getattr(config, name)
    period, minimum = part.sync_period, part.min_sync_period
    if period <= 0:
        yield invalid(f"{name}.syncPeriod", str(period), "must be greater than 0")
    if minimum < 0:
        yield invalid(f"{name}.minSyncPeriod", str(minimum), "must be greater than or equal to 0")
    if minimum > period:
        bound = field_path(f"{name}.minSyncPeriod")
        yield invalid(f"{name}.syncPeriod", str(minimum), f"must be greater than or equal to {bound}")


def _ipvs(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    if config.mode == MODE_IPVS:
        yield from _not_negative("ipvs", config.ipvs, "tcp_timeout", "tcp_fin_timeout", "udp_timeout")
        for index, cidr in enumerate(config.ipvs.exclude_cidrs):
            if canonical_cidr(cidr) is None:
                yield invalid(f"ipvs.excludeCIDRs[{index}]", cidr, "must be a valid CIDR")


def _not_negative(part: str, section: msgspec.Struct, *fields: str) -> Iterator[FieldError]:
    for field in fields:
        value = getattr(section, field)
        if value < 0:
            shown = str(value) if isinstance(value, Duration) else value
            yield invalid(f"{part}.{json_name(field)}", shown, "must be greater than or equal to 0")


def _single_values(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    if not -1000 <= config.oom_score_adj <= 1000:
        yield invalid("oomScoreAdj", config.oom_score_adj, "must be within the range [-1000, 1000]")
    if config.mode and config.mode not in MODES:
        detail = "must be iptables, ipvs, nftables or blank (blank means the best-available proxy [currently iptables])"
        yield invalid("mode", config.mode, detail)
    yield from _not_negative("clientConnection", config.client_connection, "burst")
    if config.config_sync_period <= 0:
        yield invalid("configSyncPeriod", str(config.config_sync_period), "must be greater than 0")
    if not is_port_range(config.port_range):
        yield invalid("portRange", config.port_range, "must be a valid port range (e.g. 300-2000)")
    version = config.show_hidden_metrics_for_version
    if version not in ("", PREVIOUS_MINOR):
        detail = (
            f"--show-hidden-metrics-for-version must be omitted or have the value '{PREVIOUS_MINOR}'. "
            "Only the previous minor version is allowed"
        )
        yield invalid("showHiddenMetricsForVersion", version, detail)


def _addresses(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    if parse_ip(config.bind_address) is None:
        yield invalid("bindAddress", config.bind_address, "not a valid textual representation of an IP address")
    if config.healthz_bind_address:
        yield from _host_port("healthzBindAddress", config.healthz_bind_address)
    yield from _host_port("metricsBindAddress", config.metrics_bind_address)


def _host_port(path: str, text: str) -> Iterator[FieldError]:
    split = split_host_port(text)
    if split is None:
        yield invalid(path, text, "must be IP:port")
        return
    host, port = split
    if parse_ip(host) is None:
        yield invalid(path, host, "must be a valid IP")
    number = _small_integer(port)
    if number is None or not 1 <= number <= 65535:
        yield invalid(path, port, "must be a valid port")


def _node_port_addresses(addresses: tuple[str, ...]) -> Iterator[FieldError]:
    for index, address in enumerate(addresses):
        if address == NODE_PORT_ADDRESSES_PRIMARY:
            if len(addresses) != 1:
                yield invalid(f"nodePortAddresses[{index}]", address, "can't use both 'primary' and CIDRs")
            return
        if canonical_cidr(address) is None:
            yield invalid(f"nodePortAddresses[{index}]", address, "must be a valid CIDR")


def _detect_local(config: KubeProxyConfiguration) -> Iterator[FieldError]:
    mode, detect = config.detect_local_mode, config.detect_local
    if mode not in LOCAL_MODES:
        yield unsupported("detectLocalMode", mode, LOCAL_MODES)
    elif mode == LOCAL_BRIDGE_INTERFACE and not detect.bridge_interface:
        yield invalid("detectLocal.bridgeInterface", detect.bridge_interface, "must not be empty")
    elif mode == LOCAL_INTERFACE_NAME_PREFIX and not detect.interface_name_prefix:
        yield invalid("detectLocal.interfaceNamePrefix", detect.interface_name_prefix, "must not be empty")
    elif mode == LOCAL_CLUSTER_CIDR and config.cluster_cidr:
        yield from _cluster_cidrs(config.cluster_cidr.split(","))


def _cluster_cidrs(cidrs: list[str]) -> Iterator[FieldError]:
    if len(cidrs) > 2:
        yield invalid("clusterCIDR", cidrs, _ONE_OR_PAIR)
        return
    valid = True
    for cidr in cidrs:
        if canonical_cidr(cidr) is None:
            valid = False
            detail = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
            yield invalid("clusterCIDR", cidr, detail)
    if valid and len(cidrs) == 2 and len({parse_network(cidr).version for cidr in cidrs}) == 1:
        yield invalid("clusterCIDR", cidrs, _ONE_OR_PAIR)


def _logging(logging: Logging, gates: Mapping[str, bool]) -> Iterator[FieldError]:
    if logging.format not in ("text", "json"):
        yield invalid("logging.format", logging.format, "Unsupported log format")
    if logging.verbosity > _INT32_MAX:
        yield invalid("logging.verbosity", logging.verbosity, f"Must be <= {_INT32_MAX}")
    if logging.vmodule and logging.format not in ("", "text"):
        yield forbidden("logging.vmodule", "Only supported for text log format")
    for index, item in enumerate(logging.vmodule):
        path = f"logging.vmodule[{index}]"
        if not item.file_pattern:
            yield required(path, "File pattern must not be empty")
        if "=" in item.file_pattern or "," in item.file_pattern:
            yield invalid(path, item.file_pattern, "File pattern must not contain equal sign or comma")
        if item.verbosity > _INT32_MAX:
            yield invalid(path, item.verbosity, f"Must be <= {_INT32_MAX}")
    if gates.get("LoggingAlphaOptions", gates.get("AllAlpha", False)):
        return
    for name, options in (("text", logging.options.text), ("json", logging.options.json)):
        disabled = "Feature LoggingAlphaOptions is disabled"
        if options.split_stream:
            yield forbidden(f"logging.options.{name}.splitStream", disabled)
        if not options.info_buffer_size.is_zero:
            yield forbidden(f"logging.options.{name}.infoBufferSize", disabled)


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `text` is to k8s.io/utils/net (ParseIPSloppy), or None. An IPv4-mapped address is IPv4."""
    canonical = canonical_ip(text)
    return None if canonical is None else ipaddress.ip_address(canonical)


def split_host_port(text: str) -> tuple[str, str] | None:
    """Host and port of "host:port" or "[host]:port" as Go's net.SplitHostPort splits them; None when it refuses."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return None
    if host.startswith("["):
        if not host.endswith("]"):
            return None
        host = host[1:-1]
    elif ":" in host:
        return None
    if any(bracket in part for bracket in "[]" for part in (host, port)):
        return None
    return host, port


def _small_integer(text: str) -> int | None:
    """A decimal integer, with a sign if need be, as Go's strconv.Atoi reads it; None if it is not one, or is huge."""
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 18:
        return None
    return int(digits or "0") * (-1 if text.startswith("-") else 1)


def is_port_range(text: str) -> bool:
    """Whether `text` is "", a port, "low-high" or "low+offset", up to 65535: apimachinery's ParsePortRange."""
    text = text.strip()
    if not text:
        return True
    match = _PORT_RANGE.fullmatch(text)
    if match is None:
        return False
    low = _small_integer(match["low"])
    second = _small_integer(match["second"] or match["low"])
    if low is None or second is None:
        return False
    high = low + second if match["separator"] == "+" else second
    return low <= high <= 65535
