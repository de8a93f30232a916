"""The environment and the words of a command that runs in a container."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from kproxy.lab.kubelet.podspec import all_containers_of, hostname_of
from kproxy.lab.resources import Object

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


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


def not_given(pod: Object) -> list[str]:
    """What a pod's environment should have of ConfigMaps and Secrets, which no command gets, in words:
    `PASSWORD (secretKeyRef)`."""
    found = []
    for container in all_containers_of(pod):
        sources = [("envFrom", source) for source in container.get("envFrom") or ()]
        sources += [(str(item["name"]), item.get("valueFrom") or {}) for item in container.get("env") or ()]
        kinds = ("configMapRef", "secretRef", "configMapKeyRef", "secretKeyRef")
        found += [f"{name} ({kind})" for name, source in sources for kind in kinds if kind in source]
    return list(dict.fromkeys(found))


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


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` replaced, where it is known; `$$` is a `$`."""
    return _REFERENCE.sub(lambda found: values.get(found[1], found[0]) if found[1] else "$", text)
