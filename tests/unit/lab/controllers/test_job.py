"""Jobs with the API server: pods until enough have succeeded, or too many have failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.client import ApiError
from kproxy.lab.controllers.job import CONTROLLER, as_ranges, index_of, number
from kproxy.lab.resources import JOBS, Json, Object
from tests.support.lab.controlled import Controlled, controlled, running
from tests.support.waiting import eventually


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Controlled]:
    with controlled(tmp_path, CONTROLLER) as found:
        yield found


def ended(phase: str, code: int = 0) -> Json:
    moment = "2020-01-01T00:00:00Z"  # so nothing waits for a back-off
    state = {"terminated": {"exitCode": code, "startedAt": moment, "finishedAt": moment}}
    return {"phase": phase, "containerStatuses": [{"name": "a", "state": state}]}


def succeeded(_pod: Object) -> Json:
    return ended("Succeeded")


def failed(_pod: Object) -> Json:
    return ended("Failed", 3)


def job(**spec: Any) -> Json:
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x", "command": ["true"]}]}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": "default"},
        "spec": {"template": {"spec": pod}, **spec},
    }  # fmt: skip


def is_(kind: str) -> Any:
    def reached(item: Json) -> bool:
        return any(each["type"] == kind and each["status"] == "True" for each in item["status"].get("conditions", ()))

    return reached


def conditions(item: Json) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in item["status"]["conditions"]}


def test_so_many_completions_so_many_at_once(cluster: Controlled) -> None:
    cluster.client.create(JOBS, job(completions=3, parallelism=2))
    cluster.wait(JOBS, "work", lambda item: item["status"].get("ready") == 2)
    assert len(cluster.pods()) == 2
    cluster.become(succeeded)
    found = cluster.wait(JOBS, "work", is_("Complete"))
    assert conditions(found) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (found["status"]["succeeded"], found["status"].get("active", 0)) == (3, 0)
    assert found["status"]["completionTime"] >= found["status"]["startTime"]
    assert len(cluster.pods()) == 3
    eventually(lambda: ("Completed", "Job completed") in cluster.said("Job"))


def test_every_index_has_its_pod(cluster: Controlled) -> None:
    cluster.become(lambda pod: ended("Succeeded") if index_of(pod) != 1 else running(pod))
    cluster.client.create(JOBS, job(completions=3, parallelism=3, completionMode="Indexed"))
    cluster.wait(JOBS, "work", lambda item: item["status"].get("completedIndexes") == "0,2")
    cluster.become(succeeded)
    assert cluster.wait(JOBS, "work", is_("Complete"))["status"]["completedIndexes"] == "0-2"
    named = {pod["spec"]["hostname"]: name for name, pod in cluster.pods().items()}
    assert sorted(named) == ["work-0", "work-1", "work-2"]
    assert all(name.startswith(f"{hostname}-") for hostname, name in named.items())


def test_too_many_failures_end_it(cluster: Controlled) -> None:
    cluster.become(failed)
    cluster.client.create(JOBS, job(backoffLimit=1))
    found = cluster.wait(JOBS, "work", is_("Failed"))
    assert conditions(found) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert found["status"]["failed"] == 2
    text = "Job has reached the specified backoff limit"
    eventually(lambda: ("BackoffLimitExceeded", text) in cluster.said("Job"))


def test_a_suspended_job_has_no_pods_and_one_that_takes_too_long_fails(cluster: Controlled) -> None:
    cluster.client.create(JOBS, job(suspend=True, ttlSecondsAfterFinished=0))
    found = cluster.wait(JOBS, "work", is_("Suspended"))
    assert "startTime" not in found["status"]
    assert cluster.pods() == {}
    cluster.client.patch(JOBS, "work", {"spec": {"suspend": False}}, "default")
    cluster.wait(JOBS, "work", lambda item: item["status"].get("ready") == 1)
    cluster.client.patch(JOBS, "work", {"spec": {"suspend": True}}, "default")
    eventually(lambda: not cluster.pods())
    cluster.client.patch(JOBS, "work", {"spec": {"suspend": False, "activeDeadlineSeconds": 1}}, "default")
    eventually(lambda: ("DeadlineExceeded", "Job was active longer than specified deadline") in cluster.said("Job"))
    eventually(lambda: not cluster.pods())

    def gone() -> bool:
        try:
            cluster.client.get(JOBS, "work", "default")
        except ApiError as error:
            return error.code == 404
        return False

    eventually(gone)


# --- indexes ---


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
