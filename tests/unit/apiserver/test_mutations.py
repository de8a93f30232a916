"""Single-field mutations of one object of each kind, driven by the OpenAPI document.

What the server says of each is what Kubernetes says where that is recorded, and never a fault of its own.

It prints how many were tried, how many verdicts are recorded, and in how many of these the server agrees.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver import running_apiserver
from kproxy.apiserver.errors import StatusError
from kproxy.apiserver.registry.writes import Options
from kproxy.apiserver.server import ApiServer
from tests.support.apiserver.mutations import Mutation, known_verdicts, mutations, verdict_of
from tests.support.apiserver.objects import objects, resources

LEFT = {
    # A type of its own for discovery's EndpointPort, which shares its name with core's, where "" is absent.
    "EndpointSlice ports.protocol empty: taken",
}
"""What the server says otherwise than Kubernetes, and why."""
_DRY = Options(dry_run=True, field_validation="Strict")


async def _verdict(server: ApiServer, sample: dict[str, Any], mutation: Mutation) -> str:
    """What the server says against a mutation, "" if it takes it; what is no StatusError is raised."""
    resource = resources()[sample["apiVersion"], sample["kind"]]
    served = server.catalog.find(resource.group, resource.version, resource.plural)
    assert served is not None
    namespace = "default" if resource.namespaced else ""
    try:
        await server.registry.create(served, namespace, mutation.value, _DRY)
    except StatusError as error:
        return str(error) if error.code in (400, 422) else f"{error.code}: {error}"
    return ""


async def _verdicts(server: ApiServer, sample: dict[str, Any], drawn: list[Mutation]) -> list[str]:
    return [await _verdict(server, sample, mutation) for mutation in drawn]


@pytest.mark.slow
def test_mutations_get_kubernetes_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = known_verdicts()
    used: set[tuple[str, str, str, bool]] = set()
    tried, agreed = 0, 0
    wrong: list[str] = []

    with running_apiserver(tmp_path) as server:
        for sample in objects():
            kind = sample["kind"]
            drawn = list(mutations(sample, resources()[sample["apiVersion"], kind].schema_name))
            answers = server.call(functools.partial(_verdicts, sample=sample, drawn=drawn))
            for mutation, said in zip(drawn, answers, strict=True):
                wanted = verdict_of(kind, mutation, known)
                tried += 1
                if wanted is None:
                    continue
                used.update(each for each in known if verdict_of(kind, mutation, [each]) is not None)
                agreed += wanted == (not said)
                if wanted != (not said):
                    wrong.append(f"{kind} {mutation.path} {mutation.how}: {said or 'taken'}")
    with capsys.disabled():
        sys.stdout.write(f"\n{tried} mutations; {agreed} of {agreed + len(wrong)} recorded verdicts agree\n")
    assert set(wrong) == LEFT
    assert [each for each in known if each not in used] == [], "verdicts of mutations that nothing makes"
