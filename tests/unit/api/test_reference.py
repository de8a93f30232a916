"""The recorded clusters, which the real kube-proxy read, load without an error, in every format and order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from kproxy.api import Manifests, load_manifests, parse_manifests
from tests.support import paths

REFERENCE = paths.TESTS / "reference"
CLUSTERS = [*sorted(REFERENCE.glob("clusters/*/cluster.yaml")), REFERENCE / "minikube" / "cluster.yaml"]


def objects(found: Manifests) -> dict[tuple[str, str], Any]:
    groups = (found.services, found.endpoint_slices, found.endpoints, found.nodes)
    return {(type(item).__name__, item.metadata.key): item for group in groups for item in group}


def test_all_are_here() -> None:
    assert len(CLUSTERS) == 81


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.parent.name)
def test_recorded_cluster(path: Path) -> None:
    found = load_manifests([path])
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document is not None]
    assert len(objects(found)) == len(documents)
    assert not found.skipped
    # Only the form of one source range is unusual in them.
    assert all("198.51.100.7/24" in warning for warning in found.warnings)
    for document in documents:
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
        if document["kind"] != "Node" and "namespace" not in meta:
            key = f"default/{key}"
        assert (document["kind"], key) in found.sources
    shuffled = random.Random(path.parent.name).sample(documents, len(documents))
    for text in (
        "\n".join(json.dumps(document) for document in shuffled),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": shuffled}, indent=2),
        yaml.safe_dump_all(shuffled),
    ):
        assert objects(parse_manifests(text)) == objects(found)
