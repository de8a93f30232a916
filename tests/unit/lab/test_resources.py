"""The lab's resources are those of the API server."""

from __future__ import annotations

from kproxy.apiserver.kinds.resources import built_in
from kproxy.lab.resources import KINDS


def test_kinds_and_their_resources_belong_together() -> None:
    known = {(each.group, each.version, each.kind): (each.plural, each.namespaced) for each in built_in()}
    for kind, resource in KINDS.items():
        assert known[resource.group, resource.version, kind] == (resource.plural, resource.namespaced)
