"""Discovery: which groups, versions and resources there are, aggregated and plain, and `/version`."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final

from kproxy import __version__
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource

AGGREGATED: Final = "APIGroupDiscoveryList"
_ORDER: Final = (
    "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "autoscaling",
    "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io", "storage.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "node.k8s.io",
    "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
)  # fmt: skip


def version_info() -> Json:
    """`/version`: the Kubernetes release whose behaviour this is, with kproxy's own version as build metadata."""
    return {
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": f"v1.36.2+kproxy.{__version__}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"python{platform.python_version()}",
        "platform": f"linux/{'amd64' if platform.machine() == 'x86_64' else platform.machine()}",
    }


def wants_aggregated(accept: str) -> str:
    """The version of aggregated discovery that an Accept header asks for first, "" for the plain one."""
    for clause in accept.split(","):
        parameters = [part.strip() for part in clause.split(";")]
        if parameters[0] not in ("application/json", "*/*"):
            continue
        if f"as={AGGREGATED}" in parameters and "g=apidiscovery.k8s.io" in parameters:
            return "v2beta1" if "v=v2beta1" in parameters else "v2"
        return ""
    return ""


def groups_of(resources: Iterable[Resource]) -> dict[str, dict[str, list[Resource]]]:
    """Resources by group and version, in the order in which groups are listed."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in resources:
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    names = [*(name for name in _ORDER if name in found), *sorted(name for name in found if name not in _ORDER)]
    return {name: _newest_first(found[name]) for name in names}


def _newest_first(versions: dict[str, list[Resource]]) -> dict[str, list[Resource]]:
    return dict(sorted(versions.items(), key=lambda pair: version_rank(pair[0]), reverse=True))


def version_rank(name: str) -> tuple[int, int, int, str]:
    """The order of API versions: v2, v1, v1beta2, v1alpha1, then others by name."""
    import re

    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", name)
    if match is None:
        return (0, 0, 0, name)
    stage = {None: 3, "beta": 2, "alpha": 1}[match[2]]
    return (stage, int(match[1]), int(match[3] or 0), "")


def aggregated(resources: Iterable[Resource], version: str) -> Json:
    """An APIGroupDiscoveryList of groups."""
    items = []
    for group, versions in groups_of(resources).items():
        items.append(
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {"version": name, "resources": [_entry(each) for each in _sorted(rows)], "freshness": "Current"}
                    for name, rows in versions.items()
                ],
            }
        )
    kind = {"kind": AGGREGATED, "apiVersion": f"apidiscovery.k8s.io/{version}"}
    return {**kind, "metadata": {}, "items": items}


def _sorted(rows: Iterable[Resource]) -> list[Resource]:
    return sorted(rows, key=lambda each: each.plural)


def _kind(group: str, version: str, kind: str, resource: Resource) -> Json:
    """responseKind: built-in kinds leave out group and version when they are the resource's own."""
    if not resource.custom:
        return {"group": group, "version": version, "kind": kind}
    return {"group": group or resource.group, "version": version or resource.version, "kind": kind}


def _entry(resource: Resource) -> Json:
    entry: Json = {
        "resource": resource.plural,
        "responseKind": _kind("", "", resource.kind, resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": _kind(each.group, each.version, each.kind, resource),
                "verbs": list(each.verbs),
            }
            for each in resource.subresources
        ]
    return entry


def api_versions(address: str) -> Json:
    """`/api`, plain."""
    servers = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers}


def group(name: str, versions: Iterable[str]) -> Json:
    """One APIGroup."""
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(resources: Iterable[Resource]) -> Json:
    """`/apis`, plain."""
    groups = [group(name, versions) for name, versions in groups_of(resources).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(group_version: str, rows: Iterable[Resource]) -> Json:
    """`/api/v1`, `/apis/apps/v1`, plain."""
    listed: list[Json] = []
    for resource in _sorted(rows):
        entry: Json = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if resource.stored:
            entry["storageVersionHash"] = resource.storage_version_hash
        listed.append(entry)
        for each in resource.subresources:
            sub: Json = {
                "name": f"{resource.plural}/{each.name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if each.group:
                sub |= {"group": each.group, "version": each.version}
            listed.append({**sub, "kind": each.kind, "verbs": list(each.verbs)})
    kind: Json = {"kind": "APIResourceList"}
    if group_version != "v1":
        kind["apiVersion"] = "v1"
    return {**kind, "groupVersion": group_version, "resources": listed}
