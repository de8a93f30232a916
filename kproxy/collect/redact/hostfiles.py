"""A host's files: addresses, routes, neighbours, sysctls, connections, and what kube-proxy says."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kproxy.api.kubeproxyconfig.configz import CONFIGZ_KEY, split_status
from kproxy.api.kubeproxyconfig.decode import decode_config
from kproxy.cluster.facts.kubeproxy import parse_version
from kproxy.cluster.snapshot import layout
from kproxy.cluster.snapshot.host import read_arrays
from kproxy.collect.redact.names import NODE
from kproxy.collect.redact.rules import redact_rules
from kproxy.collect.redact.words import UnredactableError, Words
from kproxy.errors import InputError

_SYSCTL: Final = re.compile(r"net[./][\w./-]+\s*=\s*-?\d+\s*")
_IN_PROC: Final = re.compile(r"RemoteAddress:Port Forward|Pro FromIP")
_HEXADECIMAL: Final = re.compile(r"(?<![\w:])(?!FFFFFFFF)[0-9A-F]{8}(?!\w)")
_METRIC: Final = re.compile(r"(?:# (?:HELP|TYPE) )?(?:kubeproxy_|kproxy_|kubernetes_build_info|process_)")
_HEALTH: Final = ("lastUpdated", "currentTime", "nodeEligible", "healthy", "ip4", "ip6")
_DROPPED: Final = frozenset({"ifalias", "phys_port_id", "phys_port_name", "phys_switch_id", "parentdev"})
_LENGTHS: Final = {"src": "srclen", "dst": "dstlen", "local": "prefixlen"}
_MESSAGE: Final = re.compile(
    r"[\w.-]+: not found|not done after \d+ s|larger than \d+ KiB|no time left: \d+ s in all|exit code \d+"
)
_CONFIG_TEXT: Final = frozenset({
    "apiVersion", "kind", "mode", "detectLocalMode", "scheduler", "portRange", "contentType", "acceptContentTypes",
    "format", "infoBufferSize", "bridgeInterface", "interfaceNamePrefix", "showHiddenMetricsForVersion",
})  # fmt: skip
_CONFIG_ADDRESSES: Final = frozenset({
    "bindAddress", "healthzBindAddress", "metricsBindAddress", "clusterCIDR", "nodePortAddresses", "excludeCIDRs",
})  # fmt: skip
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+|0")


def redact_file(name: str, text: str, words: Words) -> str:
    """One of a host's files, by its name in the host's directory.

    Raises:
        UnredactableError: it must be left out.
    """
    try:
        return _BY_NAME[name](text, words)
    except (InputError, ValueError, RecursionError) as error:
        raise UnredactableError(f"cannot be read: {type(error).__name__}") from error


def message(text: str) -> str:
    """What a tool said when something failed; only what tells nothing stays."""
    return text if _MESSAGE.fullmatch(text) else "failed"


def _ip(text: str, words: Words) -> str:
    arrays = [_entry(array, words) for array in read_arrays(text, "")]
    return "".join(f"{json.dumps(array)}\n" for array in arrays)


def _entry(value: Any, words: Words) -> Any:
    if isinstance(value, list):
        return [_entry(item, words) for item in value]
    if isinstance(value, str):
        return words.text(value)
    if not isinstance(value, dict):
        return value
    found = {name: _entry(item, words) for name, item in value.items() if name not in _DROPPED}
    for name, length in _LENGTHS.items():
        if isinstance(value.get(name), str) and isinstance(value.get(length), int):
            found[name] = words.text(f"{value[name]}/{value[length]}").partition("/")[0]
    return found


def _older(_text: str, _words: Words) -> str:
    raise UnredactableError("an older kproxy gathered it; collect the node again")


def _sysctl(text: str, words: Words) -> str:
    return "".join(f"{words.text(line)}\n" for line in text.splitlines() if _SYSCTL.fullmatch(line))


def _conntrack(text: str, words: Words) -> str:
    return "".join(f"{words.text(re.sub(r' secctx=[^ ]*', '', line))}\n" for line in text.splitlines())


def _ipvs(text: str, words: Words) -> str:
    """What ipvsadm prints; or of /proc, where addresses of IPv4 are hexadecimal, and a mask of persistence stays."""

    def replaced(match: re.Match[str]) -> str:
        new = words.text(str(ipaddress.IPv4Address(bytes.fromhex(match[0]))))
        return ipaddress.IPv4Address(new).packed.hex().upper()

    in_proc = _IN_PROC.search(text) is not None
    lines = (words.text(line) for line in text.splitlines())
    return "".join(f"{_HEXADECIMAL.sub(replaced, line) if in_proc else line}\n" for line in lines)


def _recent(text: str, words: Words) -> str:
    return words.text(text)


def _errors(text: str, words: Words) -> str:
    lines = (line.partition(": ") for line in text.splitlines())
    return "".join(f"{name}: {message(said)}\n" for name, _, said in lines if name in layout.HOST_FILES)


def _with_status(text: str, redact: Callable[[str], str]) -> str:
    body, status = split_status(text)
    return redact(body) + ("" if status is None else f"\nHTTP {status}\n")


def _configz(text: str, words: Words) -> str:
    given = decode_config(text.encode("utf-8", "surrogatepass"), layout.CONFIGZ).given
    return json.dumps({CONFIGZ_KEY: redact_config(given, words)})


def redact_config(value: Any, words: Words, name: str = "") -> Any:
    """A KubeProxyConfiguration, decoded: fields that hold other words than kube-proxy's own are left out."""
    if isinstance(value, Mapping):
        found = {key: redact_config(item, words, key) for key, item in value.items() if isinstance(key, str)}
        return {key: item for key, item in found.items() if item is not None}
    if isinstance(value, list):
        items = [redact_config(item, words, name) for item in value]
        return [item for item in items if item is not None]
    if not isinstance(value, str) or not value:
        return value
    if name in _CONFIG_ADDRESSES:
        return words.text(value)
    if name == "hostnameOverride":
        return words.names.name(NODE, value)
    return value if name in _CONFIG_TEXT or _DURATION.fullmatch(value) else None


def _health(text: str, words: Words) -> str:
    def redact(body: str) -> str:
        try:
            found = json.loads(body)
        except ValueError:
            return body if body.strip() in ("ok", "") else "not ok"
        return json.dumps({key: found[key] for key in _HEALTH if key in found} if isinstance(found, dict) else {})

    return _with_status(text, redact)


def _metrics(text: str, words: Words) -> str:
    def redact(body: str) -> str:
        return "".join(f"{words.text(line)}\n" for line in body.splitlines() if _METRIC.match(line))

    return _with_status(text, redact)


def _version(text: str, words: Words) -> str:
    return f"Kubernetes {parse_version(text)}\n"


_BY_NAME: Final[Mapping[str, Callable[[str, Words], str]]] = {
    **dict.fromkeys(layout.RULES, redact_rules),
    layout.OLDER_NFT: _older,
    layout.IPSETS: redact_rules,
    layout.IPVS: _ipvs,
    layout.IPVS_CONNECTIONS: _ipvs,
    layout.ADDRESSES: _ip,
    layout.ROUTES: _ip,
    layout.ROUTING_RULES: _ip,
    layout.NEIGHBOURS: _ip,
    layout.FDB: _ip,
    layout.SYSCTLS: _sysctl,
    layout.CONNTRACK: _conntrack,
    layout.RECENT: _recent,
    layout.ERRORS: _errors,
    layout.CONFIGZ: _configz,
    layout.HEALTHZ: _health,
    layout.METRICS: _metrics,
    layout.VERSION: _version,
}
