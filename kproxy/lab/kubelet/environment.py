"""The environment and the words of a command that runs in a container."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kproxy.lab.errors import LabError
from kproxy.lab.kubelet.podspec import all_containers_of, hostname_of
from kproxy.lab.resources import Json, Object

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


class MissingError(LabError):
    """A container's environment names what is not there."""


def environment(pod: Object, container: str, *, terminal: bool = False) -> dict[str, str]:
    """What the container's `env` says with values and with fields of the pod, and what images mostly have.

    What tells `kproxy lab down` whose process it is, stays in it.
    """
    lab = {name: value for name, value in os.environ.items() if name.startswith("KPROXY_LAB")}
    given = next((item.get("env") or () for item in all_containers_of(pod) if item["name"] == container), ())
    own: dict[str, str] = {}
    for item in given:
        reference = ((item.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        if item.get("value") is not None or reference:
            own[str(item["name"])] = field_of(pod, reference) if reference else expand(str(item["value"]), own)
    shown = {"TERM": "xterm"} if terminal else {}
    return {"PATH": PATH, "HOME": "/root", "HOSTNAME": hostname_of(pod), **shown, **own, **lab}


Read = Callable[[str, str], Mapping[str, str] | None]
"""The values of a ConfigMap or a Secret of the pod's namespace, by kind and name; None if there is none."""


def with_values(pod: Object, read: Read, *, strict: bool = True) -> Json:
    """A pod whose containers' `env` has values in place of references to ConfigMaps and Secrets.

    Raises:
        MissingError: one that is not optional is not there, and it is `strict`; otherwise it is left out.
    """

    def given(container: Object) -> Iterator[Json]:
        for source in container.get("envFrom") or ():
            for kind, reference in _references(source, "Ref"):
                for name, value in (_found(pod, reference, kind, read, strict) or {}).items():
                    yield _plain(f"{source.get('prefix') or ''}{name}", value)
        for item in container.get("env") or ():
            references = list(_references(item.get("valueFrom") or {}, "KeyRef"))
            if not references:
                yield item
            for kind, reference in references:
                values = _found(pod, reference, kind, read, strict)
                if values is not None:
                    yield _plain(str(item["name"]), values[reference["key"]])

    parts = {name: pod["spec"].get(name) or () for name in ("initContainers", "containers")}
    valued = {name: [{**each, "env": list(given(each))} for each in found] for name, found in parts.items()}
    return {**pod, "spec": {**pod["spec"], **valued}}


def _references(source: Object, ending: str) -> Iterator[tuple[str, Object]]:
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        if source.get(f"{field}{ending}"):
            yield kind, source[f"{field}{ending}"]


def _found(pod: Object, reference: Object, kind: str, read: Read, strict: bool) -> Mapping[str, str] | None:
    name, key = str(reference["name"]), reference.get("key")
    values = read(kind, name)
    if values is not None and (key is None or key in values):
        return values
    if strict and not reference.get("optional"):
        where = f"{pod['metadata']['namespace']}/{name}"
        gone = values is None
        raise MissingError(
            f'{kind.lower()} "{name}" not found' if gone else f"couldn't find key {key} in {kind} {where}"
        )
    return None


def _plain(name: str, value: str) -> Json:
    return {"name": name, "value": value.replace("$", "$$")}  # nothing in it is a reference


def field_of(pod: Object, path: str) -> str:
    """A field of a pod as the downward API gives it; "" for one that is not known here."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if keyed := _KEYED.fullmatch(path):
        return str((meta.get(keyed[1]) or {}).get(keyed[2], ""))
    if path == "status.podIPs":
        return ",".join(item["ip"] for item in status.get("podIPs") or ())
    part, _, name = path.partition(".")
    known = {"metadata": ("name", "namespace", "uid"), "spec": ("nodeName", "serviceAccountName")}
    if name in known.get(part, ("podIP", "hostIP") if part == "status" else ()):
        return str({"metadata": meta, "spec": spec, "status": status}[part].get(name, ""))
    return ""


def map_of(pod: Object, path: str) -> list[tuple[str, str]]:
    """All labels or annotations of a pod, sorted, if that is what a path of the downward API asks for."""
    if path not in ("metadata.labels", "metadata.annotations"):
        return []
    return sorted((pod["metadata"].get(path.partition(".")[2]) or {}).items())


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced, where it is known; `$$` is a `$`."""
    return _REFERENCE.sub(lambda found: values.get(found[1], found[0]) if found[1] else "$", text)
