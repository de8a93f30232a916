"""Discovery documents, aggregated and plain, as kube-apiserver spells them (recorded in tests/reference/kubectl/)."""

from __future__ import annotations

from tests.support.fakeapi.storage import KINDS, Json, StatusError

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def discovery_document(path: str, aggregated: bool) -> Json:
    """What /api, /apis and /api/VERSION answer."""
    core = path.startswith("/api/") or path == "/api"
    if aggregated and path in ("/api", "/apis"):
        groups = {kind.group: kind.version for kind in KINDS if (kind.group == "") == core}
        items = [
            {"metadata": {"name": name} if name else {}, "versions": [_aggregated(name, version)]}
            for name, version in groups.items()
        ]
        kind = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
        return kind | {"metadata": {}, "items": items}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        named = sorted({(kind.group, kind.version) for kind in KINDS if kind.group})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*item) for item in named]}
    return plain_resources("", path.rpartition("/")[2])


def plain_resources(group: str, version: str) -> Json:
    """An APIResourceList. Raises StatusError."""
    resources = [
        {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": VERBS,
            "shortNames": list(kind.short_names),
        }
        for kind in KINDS
        if (kind.group, kind.version) == (group, version)
    ]
    if not resources:
        raise StatusError(404, "NotFound", "the server could not find the requested resource", {})
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}


def _group(name: str, version: str) -> Json:
    item = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [item], "preferredVersion": item}


def _aggregated(group: str, version: str) -> Json:
    return {
        "version": version,
        "resources": [
            {
                "resource": kind.plural,
                "responseKind": {"group": "", "version": "", "kind": kind.kind},
                "scope": "Namespaced" if kind.namespaced else "Cluster",
                "singularResource": kind.singular,
                "verbs": VERBS,
                "shortNames": list(kind.short_names),
            }
            for kind in KINDS
            if (kind.group, kind.version) == (group, version)
        ],
        "freshness": "Current",
    }
