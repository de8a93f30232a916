"""A pod's /etc/resolv.conf, as the kubelet writes it (kubernetes/kubernetes pkg/kubelet/network/dns)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kproxy.lab.resources import ZONE, Object

RESOLV_CONF: Final = "/etc/resolv.conf"
PODS_DIRECTORY: Final = "pods"
"""Where a node's directory has what is kept of its pods."""
NSSWITCH: Final = "/etc/nsswitch.conf"
_MAX_SERVERS: Final = 3
_MAX_SEARCHES: Final = 32


def resolv_conf(pod: Object, servers: Sequence[str], machine: str) -> str | None:
    """The text of the file; None if the pod has this machine's (`machine` is its text).

    Args:
        servers: the addresses of cluster DNS, none if there is none.
    """
    spec = pod["spec"]
    policy, config = spec.get("dnsPolicy", "ClusterFirst"), spec.get("dnsConfig") or {}
    in_cluster = policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))
    nameservers: list[str] = []
    searches: list[str] = []
    options: dict[str, str | None] = {}
    if policy != "None":
        nameservers, searches, options = _read(machine)
        if in_cluster and servers:
            nameservers, options = list(servers), {"ndots": "5"}
            searches = [f"{pod['metadata']['namespace']}.svc.{ZONE}", f"svc.{ZONE}", ZONE, *searches]
        elif not config:
            return None
    nameservers += config.get("nameservers") or ()
    searches += config.get("searches") or ()
    options |= {str(each["name"]): each.get("value") for each in config.get("options") or ()}
    lines = [f"search {' '.join(_first(searches, _MAX_SEARCHES))}"] if searches else []
    lines += [f"nameserver {each}" for each in _first(nameservers, _MAX_SERVERS)]
    if options:
        words = [name if value is None else f"{name}:{value}" for name, value in options.items()]
        lines.append(f"options {' '.join(words)}")
    return "".join(f"{line}\n" for line in lines)


def _first(items: Iterable[str], most: int) -> list[str]:
    return list(dict.fromkeys(items))[:most]


def _read(text: str) -> tuple[list[str], list[str], dict[str, str | None]]:
    """The name servers, search list and options of a resolv.conf."""
    nameservers: list[str] = []
    searches: list[str] = []
    options: dict[str, str | None] = {}
    for line in text.splitlines():
        word, *rest = line.split() or [""]
        if word == "nameserver":
            nameservers += rest[:1]
        elif word == "search":
            searches = rest
        elif word == "options":
            options |= {name: value or None for name, _, value in (each.partition(":") for each in rest)}
    return nameservers, searches, options


def write_files(pod: Object, servers: Sequence[str], directory: Path) -> None:
    """Writes what a pod sees in place of this machine's files, under its uid."""
    text = resolv_conf(pod, servers, _text(RESOLV_CONF))
    if text is None:
        return
    own = directory / f"{pod['metadata']['uid']}.files"
    own.mkdir(exist_ok=True)
    (own / "resolv.conf").write_text(text)
    # A machine may ask a daemon of its own for names; a pod asks who its resolv.conf says.
    lines = [line for line in _text(NSSWITCH).splitlines() if not line.startswith("hosts:")]
    (own / "nsswitch.conf").write_text("\n".join([*lines, "hosts: files dns", ""]))


def files_of(directory: Path, uid: str) -> Mapping[str, str]:
    """The files of a pod in place of this machine's."""
    own = directory / f"{uid}.files"
    return {f"/etc/{file.name}": str(file) for file in own.iterdir()} if own.is_dir() else {}


def remove_files(directory: Path, uid: str) -> None:
    shutil.rmtree(directory / f"{uid}.files", ignore_errors=True)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
