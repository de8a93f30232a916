"""Indexed Jobs: what a pod of an index is given, and how sets of indexes are written."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.lab.controllers.indexes import as_ranges, index_of, number


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([3], "3"), ([0, 1], "0-1"), ([4, 0, 2, 1, 6, 7, 7], "0-2,4,6-7")]
)
def test_sets_of_indexes_as_text(indexes: list[int], text: str) -> None:
    assert as_ranges(indexes) == text


def test_a_pod_knows_its_index() -> None:
    given = [{"name": "A", "value": "1"}]
    body: dict[str, Any] = {
        "metadata": {"labels": {"app": "x"}, "annotations": {}},
        "spec": {"containers": [{"name": "a", "env": given}, {"name": "b"}]},
    }
    assert index_of(body) is None
    number(body, 4)
    assert index_of(body) == 4
    assert body["metadata"]["labels"] == {"app": "x", "batch.kubernetes.io/job-completion-index": "4"}
    names = [[item["name"] for item in container["env"]] for container in body["spec"]["containers"]]
    assert names == [["A", "JOB_COMPLETION_INDEX"], ["JOB_COMPLETION_INDEX"]]
    assert given == [{"name": "A", "value": "1"}], "the template stays as it is"
