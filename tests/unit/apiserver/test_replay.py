"""What kubectl v1.36.2 and 87 single requests got from kube-apiserver v1.36.2, they get here.

`DIFFERENT` lists every deliberate difference; docs/limits.md gives the reasons.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.schema.protobuf import RENAMED, is_inlined, messages
from kproxy.apiserver.schema.types import definitions
from tests.support.apiserver.replay import ADMIN_TOKEN, REFERENCE, Player, load, play

STREAMING = "streaming lists work here; the recorded server had them disabled"
OPENAPI = "compared by test_openapi_schemas; paths are generated, and only for what is served"
DIFFERENT = {
    "requests": {
        2: "the version names kproxy",
        4: OPENAPI,
        5: OPENAPI,
        39: STREAMING,
        46: OPENAPI,
        49: OPENAPI,
        84: STREAMING,
        95: "the namespace controller runs here: a deleted empty namespace is gone at once",
    },
    "semantics": {52: STREAMING, 81: "fewer health checks, since there are fewer parts"},
}


@pytest.mark.parametrize("recording", ["requests", "semantics"])
def test_recorded_answers(tmp_path: Path, recording: str) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text(f'{ADMIN_TOKEN},admin,uid1,"system:masters"\n')
    with running_apiserver(tmp_path, token_file=tokens, service_cidrs=("10.96.0.0/12",)) as server:
        exchanges = load(recording)
        found = play(Player(server), exchanges)
    unexpected = {index: found[index] for index in found if index not in DIFFERENT[recording]}
    report = [f"{index} {exchanges[index].label}: {'; '.join(texts)}" for index, texts in unexpected.items()]
    assert not report, "\n".join(report)
    assert set(found) == set(DIFFERENT[recording]), "a difference that is no more: take it from the list"


def test_openapi_schemas() -> None:
    """Every schema that we serve for a built-in kind is the recorded one; some groups were not recorded."""
    recorded: dict[str, object] = {}
    for path in sorted((REFERENCE / "openapi-v3").glob("*.json")):
        recorded |= json.loads(path.read_text())["components"]["schemas"]
    groups = ("admissionregistration", "batch", "certificates", "flowcontrol", "node", "policy", "resource",
              "scheduling", "storage")  # fmt: skip
    unrecorded = {f"io.k8s.api.{group}.v1" for group in groups}
    unrecorded |= {f"io.k8s.api.autoscaling.v{version}" for version in (1, 2)} | {
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1"
    }
    for name, schema in definitions().items():
        if name not in recorded and (name.rpartition(".")[0] in unrecorded or ".TopologySelector" in name):
            continue
        known = recorded[name]
        assert isinstance(known, dict)
        assert {k: v for k, v in schema.items() if k != "x-kubernetes-group-version-kind"} == {
            k: v for k, v in known.items() if k != "x-kubernetes-group-version-kind"
        }, name


def test_protobuf_fields_have_schemas() -> None:
    """Every JSON name in the field tables is one of the schema's, but for what Go inlines or renames."""
    scalars = {"Time", "MicroTime", "Quantity", "IntOrString", "FieldsV1", "RawExtension"}
    for message, fields in messages().items():
        schema = definitions().get("io." + message.replace("k8s.io.", "k8s.", 1))
        if schema is None or message.rpartition(".")[2] in scalars:
            continue
        names = {RENAMED.get(name, name) for name, _, kind in fields.values() if not is_inlined(name, kind)}
        assert names <= set(schema.get("properties", ())), message
