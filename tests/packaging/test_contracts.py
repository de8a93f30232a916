"""Each contract of import-linter in pyproject.toml is broken by an import against it, and by a module that it forgets.

Nothing is written: the imports are added to the graph that import-linter itself checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from itertools import islice, pairwise
from typing import Any

import grimp
import pytest
from importlinter import configuration
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

pytestmark = pytest.mark.slow

Import = tuple[str, str]

configuration.configure()
CONFIGURATION: Mapping[str, Any] = read_configuration()
CONTRACTS: Mapping[str, Mapping[str, Any]] = {each["name"]: each for each in CONFIGURATION["contracts_options"]}
CLASSES: Mapping[str, Any] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
}


@cache
def imports() -> grimp.ImportGraph:
    """Who imports whom today."""
    return grimp.build_graph("kproxy", include_external_packages=True, cache_dir=None)


def is_kept(contract: Mapping[str, Any], *, more: Import | None = None, module: str | None = None) -> bool:
    """Whether the contract holds, with one more import or module than there are."""
    graph = deepcopy(imports())
    if more is not None:
        if more[1] not in graph.modules:
            graph.add_module(more[1], is_squashed=True)
        graph.add_import(importer=more[0], imported=more[1])
    if module is not None:
        graph.add_module(module)
    checked = CLASSES[contract["type"]](
        name=contract["name"], session_options=CONFIGURATION["session_options"], contract_options=dict(contract)
    )
    return bool(checked.check(graph, verbose=False).kept)


def layers_of(contract: Mapping[str, Any], container: str) -> list[list[str]]:
    """The modules of each layer that there are, the highest layer first."""
    prefix = f"{container}." if container else ""
    rows = [[prefix + name.strip("( )") for name in layer.split("|")] for layer in contract["layers"]]
    return [found for row in rows if (found := [name for name in row if name in imports().modules])]


def against(contract: Mapping[str, Any]) -> Iterator[Import]:
    """Imports that it forbids: from each layer to the one above and to its neighbours; of a forbidden module, and by
    each module to which it is forbidden; back to a module beside it in the same package."""
    if contract["type"] == "forbidden":
        sources, forbidden = contract["source_modules"], contract["forbidden_modules"]
        yield from ((source, forbidden[0]) for source in sources)
        yield from ((sources[0], name) for name in forbidden)
        return
    if contract["type"] == "acyclic_siblings":
        yield from backward_imports()
        return
    for container in contract.get("containers") or [""]:
        layers = layers_of(contract, container)
        for above, below in pairwise(layers):
            yield from ((lower, above[0]) for lower in below)
            yield from ((below[-1], upper) for upper in above)
        for layer in layers:
            yield from pairwise(layer)


def backward_imports() -> Iterator[Import]:
    """In each package whose modules import one another, one such import turned round."""
    for package in sorted({name.rpartition(".")[0] for name in imports().modules if name.startswith("kproxy.")}):
        beside = imports().find_children(package)
        pairs = (
            (a, b)
            for a in sorted(beside)
            for b in sorted(imports().find_modules_directly_imported_by(a) & beside - {a})
        )
        yield from ((imported, importer) for importer, imported in islice(pairs, 1))


@pytest.mark.parametrize("name", CONTRACTS)
def test_an_import_against_it_breaks_it(name: str) -> None:
    contract = CONTRACTS[name]
    assert is_kept(contract)
    tried = list(dict.fromkeys(against(contract)))
    assert tried
    assert [each for each in tried if is_kept(contract, more=each)] == []


@pytest.mark.parametrize("name", [name for name, each in CONTRACTS.items() if each.get("exhaustive")])
def test_a_module_without_a_layer_breaks_it(name: str) -> None:
    contract = CONTRACTS[name]
    for container in contract["containers"]:
        assert not is_kept(contract, module=f"{container}.module_without_a_layer")


def test_every_package_has_a_layer() -> None:
    (outermost,) = [each for each in CONTRACTS.values() if each["type"] == "layers" and not each.get("containers")]
    assert {name for layer in layers_of(outermost, "") for name in layer} == imports().find_children("kproxy")
