"""Read a KubeProxyConfiguration from a file: text, tree, typed value, defaults, validation.

The fields and their names come from `types.py`: `_Decoder` walks a type and the tree of the text side by
side. It reports every fault with file, line and field, lets the default stand for a value it could not read, and goes
on, so that validation sees the rest.

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
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from kproxy.api.document.json_text import read_json
from kproxy.api.document.tree import Document, DocumentError, Node, path_steps
from kproxy.api.document.yaml_text import read_yaml
from kproxy.api.fielderror import FieldError, Problem, ProblemError, required, unknown_field
from kproxy.api.kubeproxyconfig.configz import CONFIGZ_KEY, split_status
from kproxy.api.kubeproxyconfig.duration import Duration
from kproxy.api.kubeproxyconfig.features import STAGES
from kproxy.api.kubeproxyconfig.scalars import (
    NULLABLE,
    RefusedError,
    is_default_when_zero,
    is_zero,
    mistyped,
    read_bool,
    read_duration,
    read_float32,
    read_integer,
    read_quantity,
    read_string,
)
from kproxy.api.kubeproxyconfig.types import (
    API_VERSION,
    CONFIG_KEYS,
    CONFIG_MAPS,
    HEALTHZ_PORT,
    KIND,
    METRICS_PORT,
    MODE_IPTABLES,
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
from kproxy.errors import Location
from kproxy.family import join_host_port

_READERS: Final[Mapping[Any, Callable[[Node, str], Any]]] = {
    str: read_string,
    bool: read_bool,
    int: read_integer,
    float: read_float32,
    Duration: read_duration,
}

_T = TypeVar("_T", bound=msgspec.Struct)


class ConfigError(ProblemError):
    """A KubeProxyConfiguration that cannot be used."""


def load_config(path: str, mode: str | None = None) -> LoadedConfig:
    """The configuration in the file at `path` ("-": standard input), YAML or JSON, with kube-proxy's defaults.

    `mode`, if given, goes before what the file says.

    Raises ConfigError with everything that is wrong with it: unreadable file, text that is neither YAML nor JSON,
    another kind or version, values of the wrong type, and what kube-proxy v1.36's validation refuses.
    """
    return decode_config(read_bytes(path), path, mode)


def read_bytes(path: str) -> bytes:
    """What the file at `path` ("-": standard input) holds. Raises ConfigError when it cannot be read."""
    try:
        return read_octets(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError((Problem(Location(path), f"cannot be read: {reason}"),)) from error


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
    root = document.root
    for name in inside:
        root = document.entries(root.value)[name]
    decoder = _Decoder(document)
    decoder.lines[""] = root.line

    def location(path: str) -> Location:
        full = ".".join((*inside, path)) if path else ".".join(inside)
        line = _line(path, decoder.lines) or (document.line_of(path_steps(full)) if number else 0)
        return Location(file, number, full if inside else field_path(path), line)

    if not isinstance(root.value, dict):
        decoder.errors.append(mistyped("", root, "an object").error)
    elif decoder.check_kind(document.entries(root.value), required_=not inside):
        config = _complete(decoder.struct(KubeProxyConfiguration, root, ""), decoder.given)
        if mode is not None:
            config = msgspec.structs.replace(config, mode=mode)
        broken = {error.path for error in decoder.errors}
        decoder.errors.extend(error for error in validate_config(config) if not _covered(error.path, broken))
        if not decoder.errors:
            warnings = (*decoder.warnings, *_remarks(config))
            located = tuple(f"{location(each.path)._replace(field='')}: {each.message}" for each in warnings)
            return LoadedConfig(config, located, root.value)
    problems = [Problem(location(one.path), one.message) for one in decoder.errors]
    raise ConfigError(tuple(sorted(problems, key=lambda problem: problem.location.line)))


def _in_config_map(document: Document, file: str) -> str | None:
    """The configuration's text if this is a ConfigMap, or a list that holds some. Raises ConfigError: it has none."""
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
    raise ConfigError((Problem(where, f"a ConfigMap without a {KIND}: none under {' or '.join(CONFIG_KEYS)}"),))


def _parse(data: bytes, file: str) -> Document:
    """The one document in `data`."""

    def refuse(message: str, line: int = 0) -> ConfigError:
        return ConfigError((Problem(Location(file, line=line), message),))

    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(f"not UTF-8 text: {error.reason}", data.count(b"\n", 0, error.start) + 1) from error
    text, status = split_status(text)
    if status not in (None, 200):
        raise refuse(f"an answer with HTTP status {status}, not a {KIND}")
    try:
        if text.lstrip().startswith("{"):
            return read_json(text)
    except DocumentError as json_error:
        # It may be YAML in flow style; if it is not, the user meant JSON.
        try:
            documents = _documents(text)
        except DocumentError:
            raise refuse(f"not JSON: {_at_column(json_error)}", json_error.line) from json_error
    else:
        try:
            documents = _documents(text)
        except DocumentError as error:
            raise refuse(f"not YAML: {_at_column(error)}", error.line) from error
    if not documents:
        raise refuse(f"holds no {KIND}: it is empty")
    if len(documents) > 1:
        raise refuse(f"holds {len(documents)} documents where one {KIND} belongs", documents[1].root_line)
    return documents[0]


def _documents(text: str) -> list[Document]:
    """The documents of YAML that are not empty."""
    return [document for document in read_yaml(text) if document.value is not None]


def _at_column(error: DocumentError) -> str:
    return f"column {error.column}: {error}" if error.column else str(error)


class _Decoder:
    """Walks types and tree; gathers errors, warnings, the line of every field seen, and which were given."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.errors: list[FieldError] = []
        self.warnings: list[FieldError] = []
        self.lines: dict[str, int] = {}
        self.given: set[str] = set()

    def check_kind(self, entries: Mapping[str, Node], required_: bool) -> bool:
        """Whether this is a KubeProxyConfiguration of the version that kproxy reads."""
        for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
            node = entries.get(name, Node(None))
            self.lines[name] = node.line
            try:
                value = read_string(node, name)
            except RefusedError as refused:
                self.errors.append(refused.error)
                continue
            if not value and required_:
                self.errors.append(required(name, f"must be {json.dumps(expected)}"))
            elif value and value != expected:
                self.errors.append(unsupported(name, value, (expected,)))
        return not self.errors

    def struct(self, kind: type[_T], node: Node, path: str) -> _T:
        """A value of the type `kind`, from an object or from null."""
        if node.value is None:
            return kind()
        if not isinstance(node.value, dict):
            self.errors.append(mistyped(path, node, "an object").error)
            return kind()
        prefix = f"{path}." if path else ""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        self._strict_findings(node, prefix, {*fields} if path else {*fields, "apiVersion", "kind"})
        values = {}
        for name, child in self.document.entries(node.value).items():
            field = fields.get(name)
            if field is None:
                continue
            child_path = prefix + name
            value = self._value(field.type, child, child_path)
            absent = is_default_when_zero(field.type) and is_zero(value) and child_path not in NULLABLE
            if value is not None and not absent:
                values[field.name] = value
                self.given.add(child_path)
        return kind(**values)

    def _strict_findings(self, node: Node, prefix: str, known: set[str]) -> None:
        """What kube-proxy's strict decoding reports before it decodes again leniently."""
        assert isinstance(node.value, dict)
        for name, line in self.document.duplicates_of(node.value):
            self.lines[prefix + name] = line
            message = f"duplicate field {_quoted(prefix + name)}: the last one counts"
            self.warnings.append(FieldError(prefix + name, message))
        for name, child in self.document.entries(node.value).items():
            if name not in known:
                self.lines[prefix + name] = child.line
                self.warnings.append(unknown_field(prefix, name, known))

    def _value(self, kind: Any, node: Node, path: str) -> Any:
        """A value of type `kind`; None where the default is to stand."""
        self.lines[path] = node.line
        try:
            if path.endswith(".infoBufferSize"):
                return read_quantity(node, path)
            if kind in _READERS:
                return _READERS[kind](node, path)
        except RefusedError as refused:
            self.errors.append(refused.error)
            return None
        if get_origin(kind) is tuple:
            return self._list(get_args(kind)[0], node, path)
        if get_origin(kind) is Mapping:
            return self._gates(node, path)
        return self.struct(kind, node, path)

    def _list(self, kind: Any, node: Node, path: str) -> tuple[Any, ...] | None:
        if node.value is None:
            return None
        if not isinstance(node.value, list):
            self.errors.append(mistyped(path, node, "a list").error)
            return None
        items = [
            self._value(kind, child, f"{path}[{index}]") for index, child in enumerate(self.document.items(node.value))
        ]
        return tuple(kind() if item is None else item for item in items)

    def _gates(self, node: Node, path: str) -> Mapping[str, bool] | None:
        if node.value is None:
            return None
        if not isinstance(node.value, dict):
            self.errors.append(mistyped(path, node, "an object").error)
            return None
        self._strict_findings(node, f"{path}.", set(node.value))
        entries = self.document.entries(node.value)
        gates = {name: bool(self._value(bool, child, f"{path}.{name}")) for name, child in entries.items()}
        return MappingProxyType(gates)


def _complete(config: KubeProxyConfiguration, given: set[str]) -> KubeProxyConfiguration:
    """Defaults that depend on another field, and ports added to addresses (SetDefaults_KubeProxyConfiguration)."""
    bind = parse_ip(config.bind_address)
    everywhere, loopback = ("0.0.0.0", "127.0.0.1") if bind is not None and bind.version == 4 else ("[::]", "[::1]")
    healthz = config.healthz_bind_address if "healthzBindAddress" in given else f"{everywhere}:{HEALTHZ_PORT}"
    metrics = config.metrics_bind_address if "metricsBindAddress" in given else f"{loopback}:{METRICS_PORT}"
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
    if config.mode not in (MODE_IPTABLES, MODE_NFTABLES):
        message = f'mode "{config.mode}": kproxy renders the rules of iptables and nftables mode only'
        remarks.append(FieldError("mode", message))
    for name, enabled in sorted(config.feature_gates.items()):
        stage = STAGES.get(name)
        if stage in ("GA", "DEPRECATED"):
            label = "GA" if stage == "GA" else "deprecated"
            setting = f"Setting {label} feature gate {name}={json.dumps(enabled)}"
            message = f"{setting}. It will be removed in a future release."
            remarks.append(FieldError(f"featureGates.{name}", message))
    return remarks


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _covered(path: str, broken: set[str]) -> bool:
    """Whether a fault at or above `path` is already known, so that what validation saw there is only the default."""
    return any(path == known or path.startswith((f"{known}.", f"{known}[")) for known in broken)


def _line(path: str, lines: Mapping[str, int]) -> int:
    """The line of the field at `path`, or of the nearest field above it."""
    if not path:
        return lines.get("", 0)
    while path:
        if lines.get(path):
            return lines[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return 0
