"""Read a KubeProxyConfiguration from a file: text, tree, typed value, defaults, validation.

The fields and their names come from `types.py`. Every fault is reported with file, line and field; the default stands
for a value of the wrong type, so that validation sees the rest.

kube-proxy first decodes strictly and, when that finds unknown fields or repeated keys, logs the finding and decodes
again leniently (loadConfig in its command package). Hence these are warnings here: an unknown field counts for nothing,
of a repeated key the last one counts. Names are matched exactly, upper and lower case included, as Kubernetes does.

A cluster keeps the configuration as text in a ConfigMap. The ConfigMap as `kubectl get -o yaml` prints it is read, too:
what is under the key that kubeadm's, or EKS's, has it in.

What GET /configz of a kube-proxy answered is a configuration, too, as it is: under the name of its API group, and in a
snapshot with the answer's HTTP status in a last line.

A field that is absent or null takes kube-proxy's default, and so does a zero where Go cannot tell it from absence.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from kproxy.api.document.json_text import JsonDocument
from kproxy.api.document.read import read_documents
from kproxy.api.document.tree import Document, DocumentError, path_steps
from kproxy.api.fielderror import FieldError, Problem, ProblemError, required, unknown_field
from kproxy.api.kubeproxyconfig.configz import CONFIGZ_KEY, split_status
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.features import STAGES
from kproxy.api.kubeproxyconfig.types import (
    API_VERSION,
    CONFIG_KEYS,
    CONFIG_MAPS,
    HEALTHZ_PORT,
    KIND,
    METRICS_PORT,
    MODE_IPTABLES,
    MODE_IPVS,
    MODE_NFTABLES,
    KubeProxyConfiguration,
    LoadedConfig,
)
from kproxy.api.kubeproxyconfig.validate import (
    field_path,
    parse_ip,
    split_host_port,
    unsupported,
    validate_config,
)
from kproxy.api.octets import read_octets
from kproxy.api.validation.types import mistyped, overlap, type_errors, unknown_fields, without_fields
from kproxy.errors import Location
from kproxy.family import join_host_port

NULLABLE: Final = frozenset({
    "iptables.masqueradeBit", "iptables.localhostNodePorts", "nftables.masqueradeBit", "oomScoreAdj",
    "conntrack.maxPerCore", "conntrack.min", "conntrack.tcpEstablishedTimeout", "conntrack.tcpCloseWaitTimeout",
})  # fmt: skip
"""The fields that kube-proxy's type holds by pointer: null is absence, and zero is a value of its own."""

_T = TypeVar("_T", bound=msgspec.Struct)


class ProxyConfigError(ProblemError):
    """A KubeProxyConfiguration that cannot be used."""


def load_config(path: str, mode: str | None = None) -> LoadedConfig:
    """The configuration in the file at `path` ("-": standard input), YAML or JSON, with kube-proxy's defaults.

    `mode`, if given, goes before what the file says.

    Raises ProxyConfigError with everything that is wrong with it: unreadable file, text that is neither YAML nor JSON,
    another kind or version, values of the wrong type, and what kube-proxy v1.36's validation refuses.
    """
    return decode_config(read_bytes(path), path, mode)


def read_bytes(path: str) -> bytes:
    """What the file at `path` ("-": standard input) holds. Raises ProxyConfigError when it cannot be read."""
    try:
        return read_octets(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProxyConfigError((Problem(Location(path), f"cannot be read: {reason}"),)) from error


def decode_config(data: bytes, file: str = "-", mode: str | None = None) -> LoadedConfig:
    """The configuration that `data` holds, as `load_config`; `file` is what messages call it."""
    document = _parse(data, file)
    inner = _in_config_map(document, file)
    if inner is not None:
        return decode_config(inner.encode("utf-8", "surrogatepass"), f"{file}: ConfigMap", mode)
    is_answer = isinstance(document.root.value, dict) and isinstance(document.root.value.get(CONFIGZ_KEY), dict)
    return decode_document(document, file, mode, inside=(CONFIGZ_KEY,) if is_answer else ())


def decode_document(
    document: Document, file: str, mode: str | None = None, *, number: int = 0, inside: Sequence[str] = ()
) -> LoadedConfig:
    """The same of a document that is read already.

    Args:
        number: which document of the file it is, for messages; 0: the only one.
        inside: the path of the field that holds the configuration, which there need not say its apiVersion and kind.
    """
    root: Any = document.value
    for name in inside:
        root = root[name]

    def problem(error: FieldError) -> Problem:
        full = ".".join((*inside, error.path) if error.path else inside)
        line = max(document.line_of(path_steps(full)), document.root_line)
        return Problem(Location(file, number, full if inside else field_path(full), line), error.message)

    errors = [mistyped("", root, "a map")] if not isinstance(root, dict) else _kind_errors(root, required_=not inside)
    if not errors:
        rest = {name: value for name, value in root.items() if name not in ("apiVersion", "kind")}
        given = _as_go_reads(rest, KubeProxyConfiguration(), whole=not isinstance(document, JsonDocument))
        errors = type_errors(given, KubeProxyConfiguration)
        wrong = {error.path.partition("[")[0] for error in errors}
        fitting = without_fields(given, [path_steps(path) for path in wrong])
        read = msgspec.convert(fitting, KubeProxyConfiguration, dec_hook=lambda kind, value: kind.of(value))
        config = _complete(_with_defaults(read), given)
        if mode is not None:
            config = msgspec.structs.replace(config, mode=mode)
        errors += (each for each in validate_config(config) if not any(overlap(each.path, path) for path in wrong))
        if not errors:
            found = [
                problem(each) for each in (*unknown_fields(given, KubeProxyConfiguration, _unknown), *_remarks(config))
            ]
            found += [
                Problem(Location(file, number, line=each.line), f"{each.message}: the last one counts")
                for each in document.duplicates
            ]
            warnings = tuple(f"{each.location._replace(field='')}: {each.message}" for each in found)
            return LoadedConfig(config, warnings, root)
    raise ProxyConfigError(sorted(map(problem, errors), key=lambda each: each.location.line))


def _in_config_map(document: Document, file: str) -> str | None:
    """The configuration's text if this is a ConfigMap, or a list of some. Raises ProxyConfigError: it has none."""
    value = document.value
    if not isinstance(value, dict):
        return None
    items = value.get("items") if str(value.get("kind")).endswith("List") else None
    maps = [
        each
        for each in (items if isinstance(items, list) else [value])
        if isinstance(each, dict) and (each.get("apiVersion", "v1"), each.get("kind")) == ("v1", "ConfigMap")
    ]
    if not maps:
        return None
    # Of several, as `kubectl get configmap -A -o yaml` lists them, that of its name.
    named = [each for each in maps if (each.get("metadata") or {}).get("name") in CONFIG_MAPS]
    for texts in (each.get("data") for each in named or maps):
        for key in CONFIG_KEYS:
            text = texts.get(key) if isinstance(texts, dict) else None
            if isinstance(text, str) and text.strip():
                return text
    where = Location(file, line=document.root_line)
    raise ProxyConfigError((Problem(where, f"a ConfigMap without a {KIND}: none under {' or '.join(CONFIG_KEYS)}"),))


def _parse(data: bytes, file: str) -> Document:
    """The one document in `data`."""

    def refuse(message: str, line: int = 0) -> ProxyConfigError:
        return ProxyConfigError((Problem(Location(file, line=line), message),))

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text: {error.reason}", data.count(b"\n", 0, error.start) + 1) from error
    text, status = split_status(text)
    if status not in (None, 200):
        raise refuse(f"an answer with HTTP status {status}, not a {KIND}")
    try:
        documents = [document for document in read_documents(text) if document.value is not None]
    except DocumentError as error:
        column = f"column {error.column}: " if error.column else ""
        raise refuse(f"neither YAML nor JSON: {column}{error}", error.line) from error
    if not documents:
        raise refuse(f"holds no {KIND}: it is empty")
    if len(documents) > 1:
        raise refuse(f"holds {len(documents)} documents where one {KIND} belongs", documents[1].root_line)
    return documents[0]


def _unknown(prefix: str, name: str, known: Collection[str], _given: object) -> list[FieldError]:
    return [unknown_field(prefix, name, known)]


def _kind_errors(root: Mapping[str, Any], *, required_: bool) -> list[FieldError]:
    """What is wrong if this is no KubeProxyConfiguration of the version that kproxy reads."""
    errors = []
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        value = root.get(name)
        if not value and required_:
            errors.append(required(name, f"must be {json.dumps(expected)}"))
        elif value and value != expected:
            errors.append(unsupported(name, value, (expected,)))
    return errors


def _as_go_reads(value: Any, default: object, *, whole: bool, prefix: str = "") -> Any:
    """A value as it comes to Go's types: a field that is null is absent, but for a duration, which refuses it. YAML
    becomes JSON first, in which `whole` numbers have no fraction."""
    if isinstance(value, dict):
        fields = msgspec.structs.fields(default) if isinstance(default, msgspec.Struct) else ()
        defaults = {field.encode_name: getattr(default, field.name) for field in fields}
        return {
            name: _as_go_reads(child, defaults.get(name), whole=whole, prefix=f"{prefix}{name}.")
            for name, child in value.items()
            if child is not None or (type(defaults.get(name)) is Duration and prefix + name not in NULLABLE)
        }
    if isinstance(value, list):
        return [_as_go_reads(each, None, whole=whole) for each in value]
    return int(value) if whole and isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value


def _with_defaults(part: _T, prefix: str = "") -> _T:
    """A part with the defaults in place of the zeros that Go cannot tell from absent fields."""
    changes: dict[str, Any] = {}
    for field in msgspec.structs.fields(part):
        value, path = getattr(part, field.name), prefix + field.encode_name
        if isinstance(value, msgspec.Struct):
            changes[field.name] = _with_defaults(value, f"{path}.")
        elif not value and not isinstance(value, bool) and path not in NULLABLE:
            changes[field.name] = field.default
    return msgspec.structs.replace(part, **changes)


def _complete(config: KubeProxyConfiguration, given: Mapping[str, Any]) -> KubeProxyConfiguration:
    """Defaults that depend on another field, and ports added to addresses (SetDefaults_KubeProxyConfiguration)."""
    bind = parse_ip(config.bind_address)
    everywhere, loopback = ("0.0.0.0", "127.0.0.1") if bind is not None and bind.version == 4 else ("[::]", "[::1]")
    healthz = config.healthz_bind_address if given.get("healthzBindAddress") else f"{everywhere}:{HEALTHZ_PORT}"
    metrics = config.metrics_bind_address if given.get("metricsBindAddress") else f"{loopback}:{METRICS_PORT}"
    return msgspec.structs.replace(
        config,
        healthz_bind_address=_with_port(healthz, HEALTHZ_PORT),
        metrics_bind_address=_with_port(metrics, METRICS_PORT),
    )


def _with_port(address: str, port: int) -> str:
    """`address` with `port` when it is a bare IP address; else unchanged, for validation to judge."""
    if split_host_port(address) is not None:
        return address
    return address if parse_ip(address) is None else join_host_port(address, port)


def _remarks(config: KubeProxyConfiguration) -> list[FieldError]:
    """What is valid and yet worth a word."""
    remarks = []
    if config.mode not in (MODE_IPTABLES, MODE_NFTABLES, MODE_IPVS):
        message = f'mode "{config.mode}": kproxy knows iptables, nftables and ipvs mode only'
        remarks.append(FieldError("mode", message))
    for name, enabled in sorted(config.feature_gates.items()):
        stage = STAGES.get(name)
        if stage in ("GA", "DEPRECATED"):
            label = "GA" if stage == "GA" else "deprecated"
            setting = f"Setting {label} feature gate {name}={json.dumps(enabled)}"
            message = f"{setting}. It will be removed in a future release."
            remarks.append(FieldError(f"featureGates.{name}", message))
    return remarks
