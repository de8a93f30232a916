"""What kube-proxy tells of itself: /configz, /healthz, /metrics, and what `kube-proxy --version` prints; and the
ConfigMap that a cluster keeps its configuration in.

`kproxy run` answers the same. Where the answer's HTTP status is known it stands in a last line `HTTP 503`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from kproxy.api.kubeproxyconfig.configz import split_status
from kproxy.api.kubeproxyconfig.types import CONFIG_KEYS, CONFIG_MAPS

CONFIG_NAMESPACE: Final = "kube-system"

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Health(msgspec.Struct, frozen=True):
    """What /healthz said.

    Attributes:
        healthy: None if the answer does not tell.
        last_updated, current_time: RFC 3339, "" if not said. They differ while rules are not brought up to date.
        eligible: whether the node wants traffic of load balancers, None if not said.
        text: the answer itself.
    """

    healthy: bool | None
    last_updated: str = ""
    current_time: str = ""
    eligible: bool | None = None
    text: str = ""


class ConfigText(NamedTuple):
    """kube-proxy's configuration as a ConfigMap has it; `source` is what messages call it."""

    source: str
    data: bytes


def config_text(name: object, data: object) -> ConfigText | None:
    """The configuration in a ConfigMap of this name, with this data; None if it is not kube-proxy's, or has none."""
    if name not in CONFIG_MAPS or not isinstance(data, Mapping):
        return None
    for key in CONFIG_KEYS:
        text = data.get(key)
        if isinstance(text, str) and text:
            return ConfigText(f"ConfigMap {CONFIG_NAMESPACE}/{name}, {key}", text.encode("utf-8", "surrogatepass"))
    return None


def find_config_text(objects: Iterable[object]) -> ConfigText | None:
    """The configuration in kube-proxy's ConfigMap; None if it is not among these objects."""
    for each in objects:
        if isinstance(each, Mapping) and each.get("kind") == "ConfigMap":
            found = config_text((each.get("metadata") or {}).get("name"), each.get("data"))
            if found is not None:
                return found
    return None


def parse_health(text: str) -> Health:
    """The answer of /healthz: an object of JSON, or any other text."""
    body, status = split_status(text)
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        found = {}
    eligible = found.get("nodeEligible")
    updated, now = str(found.get("lastUpdated") or ""), str(found.get("currentTime") or "")
    healthy = None if status is None else status == 200
    return Health(healthy, updated, now, eligible if isinstance(eligible, bool) else None, body.strip())


def parse_metrics(text: str) -> dict[str, dict[str, float]]:
    """The samples of /metrics by name and, within a name, by its labels as they are written."""
    found: dict[str, dict[str, float]] = {}
    for line in split_status(text)[0].splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line)
        if match is not None:
            try:
                found.setdefault(match[1], {})[match[2] or ""] = float(match[3])
            except ValueError:
                continue
    return found


def metric(metrics: Mapping[str, Mapping[str, float]], name: str, **labels: str) -> float | None:
    """The first sample of a name that has these labels."""
    for text, value in metrics.get(name, {}).items():
        if labels.items() <= dict(_LABEL.findall(text)).items():
            return value
    return None


def parse_version(text: str) -> str:
    """`v1.36.2` of `Kubernetes v1.36.2`; "" if no version is there."""
    match = re.search(r"v\d+\.\d+\.\d+\S*", text)
    return match[0] if match else ""
