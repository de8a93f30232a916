"""CronJobs with the API server and a clock that the test sets."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kproxy.apiserver.kinds.cron import parse_schedule
from kproxy.lab.controllers.cronjob import CronJobController, due, job_of, missed
from kproxy.lab.resources import CRON_JOBS, JOBS, Json, Object, parse_timestamp
from tests.support.lab.controlled import Controlled, controlled
from tests.support.waiting import eventually

START = datetime.datetime.now(datetime.UTC).replace(minute=0, second=0, microsecond=0) + datetime.timedelta(days=1)
"""Later than the creation of what tests make, as creation is the API server's time."""


class Clock:
    """The time that the controller is told."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime.datetime:
        return self.now


class Timed(Controlled):
    """A cluster with a CronJob controller that looks when the clock is set."""

    clock: Clock
    controller: CronJobController

    def at(self, minutes: float) -> float | None:
        """Sets the clock to so many minutes after the start; what the sync says."""
        self.clock.now = START + datetime.timedelta(minutes=minutes)
        return self.sync()

    def sync(self) -> float | None:
        return self.controller.sync("default/backup")

    def jobs(self) -> list[str]:
        return sorted(item.metadata.name for item in self.client.list(JOBS, "default").items)

    def cron_job(self) -> Object:
        return self.client.get(CRON_JOBS, "backup", "default").raw

    def active(self) -> list[str]:
        return [each["name"] for each in self.cron_job()["status"].get("active", ())]

    def knows(self, name: str, reached: Callable[[Object], bool] = lambda item: True) -> None:
        """Waits until the controller's informers show a Job so."""

        def shown() -> bool:
            found = self.controller._jobs.indexer.get_by_key(f"default/{name}")
            return found is not None and reached(found.raw)

        eventually(shown)

    def end(self, name: str, kind: str, moment: datetime.datetime) -> None:
        """Gives a Job the status of one that has ended, and waits until the controller can see it."""
        at = f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        before = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[kind]
        conditions = [{"type": each, "status": "True", "lastTransitionTime": at} for each in (before, kind)]
        status = {"startTime": at, "conditions": conditions, **({"completionTime": at} if kind == "Complete" else {})}
        self.client.patch(JOBS, name, {"status": status}, "default", subresource="status")
        self.knows(name, lambda item: len((item.get("status") or {}).get("conditions") or ()) == 2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Timed]:
    clock, made = Clock(), []

    class Manual(CronJobController):
        """Syncs when the test says so only."""

        def start(self) -> None:
            pass

    def controller(client: Any, factory: Any) -> CronJobController:
        made.append(Manual(client, factory, clock))
        return made[0]

    with controlled(tmp_path, controller) as found:
        timed = Timed(found.client, found.kubelet)
        timed.clock, timed.controller = clock, made[0]
        yield timed


def create(cluster: Timed, **spec: Any) -> Object:
    """A CronJob whose schedule has been followed up to the start of the test, as its status says."""
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x", "command": ["true"]}]}
    template = {
        "metadata": {"labels": {"app": "backup"}, "annotations": {"a": "b"}},
        "spec": {"template": {"spec": pod}},
    }
    body = {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "backup", "namespace": "default"},
        "spec": {"schedule": "*/10 * * * *", "jobTemplate": template, **spec},
    }  # fmt: skip
    cluster.client.create(CRON_JOBS, body)
    status = {"status": {"lastScheduleTime": f"{START:%Y-%m-%dT%H:%M:%SZ}"}}
    made = cluster.client.patch(CRON_JOBS, "backup", status, "default", subresource="status").raw
    eventually(lambda: cluster.controller._cron_jobs.indexer.get_by_key("default/backup") is not None)
    return made


def name_at(minutes: int) -> str:
    return f"backup-{int(START.timestamp()) // 60 + minutes}"


def test_a_job_at_each_time(cluster: Timed) -> None:
    made = create(cluster, timeZone="Asia/Kolkata")
    assert cluster.at(9.5) == pytest.approx(30.1)
    assert cluster.jobs() == []
    assert cluster.at(10) == pytest.approx(600.1)
    job = cluster.client.get(JOBS, name_at(10), "default").raw
    assert job["metadata"]["labels"]["app"] == "backup"
    scheduled = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert (parse_timestamp(scheduled), scheduled[-6:]) == (START + datetime.timedelta(minutes=10), "+05:30")
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    assert cluster.active() == [name_at(10)]
    assert parse_timestamp(cluster.cron_job()["status"]["lastScheduleTime"]) == START + datetime.timedelta(minutes=10)
    cluster.sync()
    assert cluster.jobs() == [name_at(10)], "once for each time"
    cluster.at(20)
    assert cluster.active() == [name_at(10), name_at(20)], "Allow"
    cluster.end(name_at(10), "Complete", START + datetime.timedelta(minutes=21))
    cluster.sync()
    assert cluster.active() == [name_at(20)]
    assert cluster.cron_job()["status"]["lastSuccessfulTime"] == f"{START:%Y-%m-%dT%H}:21:00Z"
    cluster.knows(name_at(20))
    cluster.client.delete(JOBS, name_at(20), "default")
    eventually(lambda: cluster.controller._jobs.indexer.get_by_key(f"default/{name_at(20)}") is None)
    cluster.sync()
    assert cluster.active() == []
    wanted = {
        ("SuccessfulCreate", f"Created job {name_at(10)}"),
        ("SawCompletedJob", f"Saw completed job: {name_at(10)}, condition: Complete"),
        ("MissingJob", f"Active job went missing: {name_at(20)}"),
    }
    eventually(lambda: wanted <= cluster.said("CronJob"))


def test_forbid_waits_for_the_one_before_and_replace_ends_it(cluster: Timed) -> None:
    create(cluster, concurrencyPolicy="Forbid")
    cluster.at(10)
    cluster.at(20)
    assert cluster.jobs() == [name_at(10)]
    cluster.end(name_at(10), "Failed", START + datetime.timedelta(minutes=21))
    cluster.at(22)
    assert cluster.active() == [name_at(20)], "made up for"
    cluster.client.patch(CRON_JOBS, "backup", {"spec": {"concurrencyPolicy": "Replace"}}, "default")
    cluster.at(31)
    assert (cluster.active(), cluster.jobs()) == ([name_at(30)], [name_at(10), name_at(30)])
    wanted = {
        (
            "JobAlreadyActive",
            "Not starting job because prior execution is running and concurrency policy is Forbid",
        ),
        ("SuccessfulDelete", f"Deleted job {name_at(20)}"),
    }
    eventually(lambda: wanted <= cluster.said("CronJob"))


def test_what_was_missed(cluster: Timed) -> None:
    """Only the last of many times; none that is too long ago for startingDeadlineSeconds, and none while suspended."""
    create(cluster, suspend=True, startingDeadlineSeconds=60)
    assert cluster.at(35) is None
    cluster.client.patch(CRON_JOBS, "backup", {"spec": {"suspend": False}}, "default")
    assert cluster.at(35) == pytest.approx(300.1)
    assert cluster.jobs() == []
    cluster.client.patch(CRON_JOBS, "backup", {"spec": {"startingDeadlineSeconds": None}}, "default")
    cluster.at(1015)
    assert cluster.jobs() == [name_at(1010)]
    text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    eventually(lambda: ("TooManyMissedTimes", text) in cluster.said("CronJob"))


def test_so_many_that_ended_are_kept_and_one_of_somebody_else_is_told_of(cluster: Timed) -> None:
    """By hand it is made as `kubectl create job --from=cronjob/backup` does."""
    made = create(cluster, successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    hand = job_of(made, START)
    del hand["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]
    hand["metadata"] |= {"name": "by-hand", "annotations": {"cronjob.kubernetes.io/instantiate": "manual"}}
    cluster.client.create(JOBS, {**hand, "metadata": {**hand["metadata"], "namespace": "default"}})
    cluster.knows("by-hand")
    cluster.at(10)
    assert cluster.active() == [name_at(10)]
    told = ("UnexpectedJob", "Saw a job that the controller did not create or forgot: by-hand")
    eventually(lambda: told in cluster.said("CronJob"))
    cluster.at(20)
    for position, (name, kind) in enumerate(
        (("by-hand", "Complete"), (name_at(10), "Complete"), (name_at(20), "Failed"))
    ):
        cluster.end(name, kind, START + datetime.timedelta(minutes=20 + position))
    cluster.at(25)
    assert (cluster.jobs(), cluster.active()) == ([name_at(10)], [])


def test_a_job_whose_name_is_taken(cluster: Timed) -> None:
    """Its own, made just before the status was lost, is the one it wanted; another's is left alone."""
    made = create(cluster)
    own = job_of(made, START + datetime.timedelta(minutes=10))
    cluster.client.create(JOBS, {**own, "metadata": {**own["metadata"], "namespace": "default"}})
    cluster.at(10)
    assert cluster.active() == [name_at(10)]
    foreign = job_of(made, START + datetime.timedelta(minutes=20))
    del foreign["metadata"]["ownerReferences"]
    cluster.client.create(JOBS, {**foreign, "metadata": {**foreign["metadata"], "namespace": "default"}})
    cluster.at(20)
    assert cluster.active() == [name_at(10)]


def test_two_times_of_a_minute_have_one_job(cluster: Timed) -> None:
    create(cluster, schedule="@every 20s", startingDeadlineSeconds=1 << 60)
    cluster.at(0.4)
    assert cluster.active() == [name_at(0)]
    cluster.at(0.75)
    assert cluster.active() == [name_at(0)]
    cluster.at(1.1)
    assert cluster.active() == [name_at(0), name_at(1)]


def test_a_schedule_without_times_is_told_of(cluster: Timed) -> None:
    create(cluster, schedule="0 0 30 2 *")
    assert cluster.at(10) is None
    eventually(
        lambda: ("InvalidSchedule", "invalid schedule: 0 0 30 2 * : it names no time") in cluster.said("CronJob")
    )


def cron(**spec: Any) -> Json:
    return {"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:05Z"}, "spec": spec}


def test_intervals_are_counted_from_the_last_job_or_the_creation() -> None:
    schedule = parse_schedule("@every 1m")
    moment = datetime.datetime(2026, 1, 1, 0, 3, 30, tzinfo=datetime.UTC)
    assert due(cron(), schedule, moment) == moment.replace(second=5)
    assert due(cron(startingDeadlineSeconds=24), schedule, moment) is None
    assert due(cron(startingDeadlineSeconds=26), schedule, moment) == moment.replace(second=5)
    assert missed(cron(), schedule, moment) == 3
    assert due(cron(), schedule, moment.replace(minute=1, second=4)) is None
