"""kube-proxy's flags and configuration file, and kproxy's own options, as one value.

As kube-proxy v1.36 does (Options.Complete in cmd/kube-proxy/app/options.go): without a configuration file the flags
become the fields of a configuration, which is read, defaulted and validated like a file. With one, kube-proxy ignores
the flags, except those for logging and `--hostname-override`. Here they go before the file, and a note names them: an
agent that was given a kubeconfig must not program a node from another cluster. Flags that stand for no field
(`--master`, `--cleanup`, `--init-only`, `--write-config-to`) always count; they are not looked at here.

A flag that is given with a zero or an empty value means just that, where a file's zero may mean the default:
`--iptables-min-sync-period=0`, `--metrics-bind-address=`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from kproxy.agent.config.flags import BY_FIELD, BY_NAME, Flag, parse_value
from kproxy.api.fielderror import Problem
from kproxy.api.kubeproxyconfig.configz import configz
from kproxy.api.kubeproxyconfig.decode import ProxyConfigError, decode_config, load_config
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.types import (
    API_VERSION,
    KIND,
    MODE_IPTABLES,
    MODE_IPVS,
    MODE_NFTABLES,
    KubeProxyConfiguration,
    LoadedConfig,
)
from kproxy.api.kubeproxyconfig.validate import field_path, validate_config
from kproxy.cluster.facts.kubeproxy import ConfigText
from kproxy.errors import InputError, Location
from kproxy.family import join_host_port
from kproxy.linux.iptables.legacy import DEFAULT_WAIT
from kproxy.netfilter.hooks import Variant
from kproxy.render import Features
from kproxy.services import IPFamily

COMMAND_LINE: Final = "command line"

ONCE_TIMEOUT: Final = 60.0
"""Seconds that --once tries for unless it is told otherwise."""

_NEVER_EMPTY: Final = frozenset({"bind-address", "detect-local-mode", "proxy-mode"})
"""Flags whose empty value is the default, to kube-proxy too."""

_Part = TypeVar("_Part", bound=msgspec.Struct)


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
        timeout: seconds that `once` tries for; 0 is no bound.
        collect_token_file: who sends its token may read this node at /debug/collect; "" for clients on this host.
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
    timeout: float = ONCE_TIMEOUT
    collect_token_file: str = ""

    @property
    def min_sync_period(self) -> float:
        return self.config.proxier.min_sync_period.seconds

    @property
    def sync_period(self) -> float:
        return self.config.proxier.sync_period.seconds


class ReadOptions(msgspec.Struct, frozen=True):
    """A configuration, and what to tell the user about it."""

    config: KubeProxyConfiguration
    notes: tuple[str, ...] = ()


def read_options(
    config_path: str | None,
    flags: Mapping[str, str],
    hostname_override: str | None = None,
    mode: str | None = None,
    config_map: ConfigText | None = None,
) -> ReadOptions:
    """The configuration of a file or of flags; `hostname_override` and `mode` go before what either says.

    Args:
        config_path: None or "" for none.
        config_map: what kube-proxy's ConfigMap has, where there is no file.
        flags: the texts of the flags that were given, by name without dashes; of a flag that was given several times,
            the last, or for lists all of them with commas between.

    Raises:
        ProxyConfigError: what is wrong with either.
        InputError: a mode that is neither iptables nor nftables.
    """
    values = _values(flags if mode is None else {**flags, "proxy-mode": mode})
    notes = [f"--{name}: has no effect: {BY_NAME[name].no_effect}" for name in sorted(flags) if BY_NAME[name].no_effect]
    read: LoadedConfig | None = None
    if config_path:
        where, read = config_path, load_config(config_path, mode)
    elif config_map is not None:
        where, read = config_map.source, decode_config(config_map.data, config_map.source, mode)
    if read is not None:
        loaded = read
        config = _with_logging(loaded.config, values)
        over = [name for name in flags if not BY_NAME[name].is_logging and not BY_NAME[name].no_effect]
        if over:
            given = {name: values[name] for name in over if mode is None or name != "proxy-mode"}
            config = _with_ports(_with_fields_of(config, _of_flags(given)[0], given), given)
            _refuse_invalid(config)
            names = ", ".join(f"--{name}" for name in over)
            notes.append(f"{names}: before what {where} says (kube-proxy ignores flags beside --config)")
    else:
        config, loaded = _of_flags(values)
        _refuse_invalid(config)
    if hostname_override:
        if not hostname_override.strip():
            raise InputError("--hostname-override: an empty name is invalid")
        config = msgspec.structs.replace(config, hostname_override=hostname_override.strip().lower())
    if config.mode == MODE_IPVS:
        raise InputError("proxy mode 'ipvs': IPVS mode is deprecated; use nftables")
    if config.mode not in (MODE_IPTABLES, MODE_NFTABLES):
        raise InputError(f"proxy mode {config.mode!r}: kproxy has the modes iptables and nftables only")
    return ReadOptions(config, (*loaded.warnings, *notes))


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


def _values(flags: Mapping[str, str]) -> dict[str, object]:
    """The flags' values, also of those that do not count: what cannot be read is refused in any case, as by pflag."""
    values, problems = {}, []
    for name, text in flags.items():
        try:
            values[name] = parse_value(BY_NAME[name], text)
        except ValueError as error:
            problems.append(Problem(Location(COMMAND_LINE, 0, f"--{name}"), str(error)))
    if problems:
        raise ProxyConfigError(tuple(problems))
    return values


def _document(values: Mapping[str, object]) -> dict[str, Any]:
    """The configuration file that says what the flags say."""
    document: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for name, value in values.items():
        if not BY_NAME[name].field:
            continue
        *parents, last = BY_NAME[name].field.split(".")
        part = document
        for parent in parents:
            part = part.setdefault(parent, {})
        part[last] = value
    return document


def _decode_flags(document: Mapping[str, Any]) -> LoadedConfig:
    try:
        return decode_config(msgspec.json.encode(document), COMMAND_LINE)
    except ProxyConfigError as error:
        raise ProxyConfigError(tuple(_as_flag(problem) for problem in error.problems)) from error


def _of_flags(values: Mapping[str, object]) -> tuple[KubeProxyConfiguration, LoadedConfig]:
    """What flags alone say, and how it was read."""
    loaded = _decode_flags(_document(values))
    return _with_ports(_with_zeros(loaded.config, values), values), loaded


def _with_fields_of(
    config: KubeProxyConfiguration, flags: KubeProxyConfiguration, names: Iterable[str]
) -> KubeProxyConfiguration:
    """A configuration with the fields that flags stand for."""
    for path in (BY_NAME[name].field.split(".") for name in names if BY_NAME[name].field):
        config = _replaced(config, path, _field(flags, path))
    return config


def _field(part: Any, path: list[str]) -> object:
    name = next(field.name for field in msgspec.structs.fields(part) if field.encode_name == path[0])
    value = getattr(part, name)
    return value if len(path) == 1 else _field(value, path[1:])


def _with_logging(config: KubeProxyConfiguration, values: Mapping[str, object]) -> KubeProxyConfiguration:
    """The flags' logging options before the file's; of vmodule both count, the flags' first (copyLogsFromFlags)."""
    given = {name: value for name, value in values.items() if BY_NAME[name].is_logging}
    if not given:
        return config
    stated: dict[str, Any] = configz(config)["logging"]
    modules = stated.get("vmodule") or []
    _merge(stated, _document(given)["logging"])
    if "vmodule" in given:
        stated["vmodule"] = [*stated["vmodule"], *modules]
    document = {"apiVersion": API_VERSION, "kind": KIND, "featureGates": dict(config.feature_gates), "logging": stated}
    logging = _decode_flags(document).config.logging
    return _with_zeros(msgspec.structs.replace(config, logging=logging), given)


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def _with_zeros(config: KubeProxyConfiguration, values: Mapping[str, object]) -> KubeProxyConfiguration:
    """Flags change kube-proxy's configuration after it has its defaults, so their zeros stand."""
    for name, value in values.items():
        zero = _zero(BY_NAME[name], value)
        if zero is not None and BY_NAME[name].field and name not in _NEVER_EMPTY:
            config = _replaced(config, BY_NAME[name].field.split("."), zero)
    return config


def _zero(flag: Flag, value: object) -> object:
    """The value if it is its kind's zero, else None."""
    match flag.kind:
        case "integer" if value == 0:
            return 0
        case "number" if value == 0:
            return 0.0
        case "text" if value == "" and "infoBufferSize" not in flag.field:
            return ""
        case "duration" if str(value).strip("+-0hmnuµs.") == "":
            return Duration()
    return None


def _replaced(part: _Part, path: list[str], value: object) -> _Part:
    name = next(field.name for field in msgspec.structs.fields(part) if field.encode_name == path[0])
    changed = value if len(path) == 1 else _replaced(getattr(part, name), path[1:], value)
    return msgspec.structs.replace(part, **{name: changed})


def _with_ports(config: KubeProxyConfiguration, values: Mapping[str, object]) -> KubeProxyConfiguration:
    """--healthz-port and --metrics-port: 0 switches a server off; another counts for an address without a port.

    An address that was not given has its port (addressFromDeprecatedFlags), so there such a flag changes nothing.
    """
    for server, field in (("healthz", "healthzBindAddress"), ("metrics", "metricsBindAddress")):
        port, address = values.get(f"{server}-port"), str(values.get(f"{server}-bind-address", ""))
        if port == 0:
            config = _replaced(config, [field], "")
        elif port is not None and address and not _has_port(address):
            config = _replaced(config, [field], join_host_port(address, port))
    return config


def _has_port(address: str) -> bool:
    return address.count(":") == 1 or "]:" in address


def _refuse_invalid(config: KubeProxyConfiguration) -> None:
    """What only a flag can say, a period of zero say, has not been validated yet.

    kube-proxy's help says that an empty --metrics-bind-address switches the server off; its validation refuses it. Here
    the help is right.
    """
    looked_at = config
    if not config.metrics_bind_address:
        looked_at = msgspec.structs.replace(config, metrics_bind_address=KubeProxyConfiguration().metrics_bind_address)
    problems = validate_config(looked_at)
    if problems:
        problems_at = [Problem(Location(COMMAND_LINE, 0, field_path(one.path)), one.message) for one in problems]
        raise ProxyConfigError(tuple(map(_as_flag, problems_at)))


def _as_flag(problem: Problem) -> Problem:
    """The flag in place of the field it stands for."""
    field = problem.location.field.removeprefix("KubeProxyConfiguration.").partition("[")[0]
    name = BY_FIELD.get(field)
    if name is None:
        return problem
    return Problem(Location(COMMAND_LINE, 0, f"--{name}"), problem.message)
