"""CronJob to Jobs: one at each time of its schedule, named after that time, so that none is made twice.

As kube-controller-manager's cron job controller. Without timeZone a schedule is in UTC, as in most clusters. A Job that
somebody else made of the CronJob (`kubectl create job --from`) counts for the history, and not for concurrencyPolicy.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Final

from kproxy.apiserver.kinds.cron import Every, Fields, parse_schedule
from kproxy.client import ApiError, RestClient, SharedInformerFactory
from kproxy.lab.controllers.base import Controller
from kproxy.lab.controllers.claims import OWNER_INDEX, owned_by, owner_index, owner_reference
from kproxy.lab.controllers.writes import delete_object, write_status
from kproxy.lab.events import NORMAL, WARNING
from kproxy.lab.resources import (
    CRON_JOBS,
    JOBS,
    Json,
    Object,
    controller_of,
    is_terminating,
    is_true,
    key_of,
    now,
    parse_timestamp,
    timestamp,
)

SCHEDULED_AT: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""The annotation of a Job that says for which time it was made."""
_KIND: Final = "CronJob"
_MANY: Final = 100
"""More missed times than this are told of."""
_LONGEST: Final = 1_000_000_000
"""Seconds; a startingDeadlineSeconds beyond this is as good as none."""
_LATE: Final = 0.1
"""Seconds after its time at which a Job is made, so that it is never before."""


def schedule_of(item: Object) -> Fields | Every:
    """The schedule of a CronJob in its time zone; ValueError, or ZoneInfoNotFoundError, if it is none."""
    zone = item["spec"].get("timeZone")
    return parse_schedule(item["spec"]["schedule"], zoneinfo.ZoneInfo(zone) if zone else datetime.UTC)


def seen_until(item: Object) -> datetime.datetime:
    """The time up to which the schedule has been followed: of the last Job, else of the creation."""
    last = (item.get("status") or {}).get("lastScheduleTime")
    return parse_timestamp(last or item["metadata"]["creationTimestamp"])


def due(item: Object, schedule: Fields | Every, moment: datetime.datetime) -> datetime.datetime | None:
    """The time for which a Job should be made at this moment, None if for none: the last one that has passed, unless it
    is longer ago than startingDeadlineSeconds."""
    found, limit = schedule.latest(seen_until(item), moment), item["spec"].get("startingDeadlineSeconds")
    late = found is not None and limit is not None and (moment - found).total_seconds() > limit
    return None if late else found


def missed(item: Object, schedule: Fields | Every, moment: datetime.datetime) -> int:
    """About how many times have passed and were not too late: the time between the first two is taken for all."""
    since, limit = seen_until(item), item["spec"].get("startingDeadlineSeconds")
    if limit is not None:
        since = max(since, moment - datetime.timedelta(seconds=min(limit, _LONGEST)))
    first = schedule.following(since)
    second = schedule.following(first) if first is not None else None
    if first is None or second is None or first > moment:
        return 0
    return (moment - first) // (second - first) + 1


def job_of(item: Object, moment: datetime.datetime) -> Json:
    """The Job of a CronJob for a time of its schedule."""
    meta, template = item["metadata"], item["spec"]["jobTemplate"]
    given, zone = template.get("metadata") or {}, item["spec"].get("timeZone")
    said = moment.astimezone(zoneinfo.ZoneInfo(zone)).isoformat() if zone else timestamp(moment)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{meta['name']}-{int(moment.timestamp()) // 60}",
            "labels": dict(given.get("labels") or {}),
            "annotations": {**(given.get("annotations") or {}), SCHEDULED_AT: said},
            "ownerReferences": [owner_reference(item, _KIND)],
        },
        "spec": template["spec"],
    }


def surplus(jobs: Iterable[Object], spec: Object) -> list[Object]:
    """The Jobs that ended, beyond what the history limits keep of each kind; the oldest."""
    found = []
    for kind, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        ended = sorted((job for job in jobs if is_true(job, kind)), key=_age)
        if spec.get(limit) is not None:
            found += ended[: max(0, len(ended) - spec[limit])]
    return found


def _age(job: Object) -> tuple[str, str]:
    return (job.get("status") or {}).get("startTime") or "", job["metadata"]["name"]


class CronJobController(Controller):
    """Makes the Jobs of every CronJob. `clock` tells the time."""

    name = "cronjob"
    component = "cronjob-controller"

    def __init__(
        self, client: RestClient, factory: SharedInformerFactory, clock: Callable[[], datetime.datetime] = now
    ) -> None:
        super().__init__(client, factory)
        self._clock = clock
        self._cron_jobs = self.follow(CRON_JOBS, lambda item: [key_of(item)])
        self._jobs = self.follow(JOBS, owned_by(_KIND), **{OWNER_INDEX: owner_index})

    def sync(self, key: str) -> float | None:
        if self._cron_jobs.indexer.get_by_key(key) is None:
            return None
        namespace, _, name = key.partition("/")
        item = self.client.get(CRON_JOBS, name, namespace).raw  # with the status that was written last
        jobs = [each.raw for each in self._jobs.indexer.by_index(OWNER_INDEX, str(item["metadata"]["uid"]))]
        for job in surplus(jobs, item["spec"]):
            self._delete(item, job)
        status = self._observe(item, jobs)
        try:
            idle = is_terminating(item) or item["spec"].get("suspend")
            return None if idle else self._follow_schedule(item, status)
        finally:
            write_status(self.client, CRON_JOBS, item, status)

    def _observe(self, item: Object, jobs: list[Object]) -> Json:
        """The status by what has become of the Jobs."""
        status = {"active": [], "lastScheduleTime": None, "lastSuccessfulTime": None, **(item.get("status") or {})}
        known = {each["uid"] for each in status["active"]}
        gone, shown = set(), {job["metadata"]["uid"] for job in jobs}
        for job in jobs:
            uid, name = job["metadata"]["uid"], job["metadata"]["name"]
            result = next((kind for kind in ("Complete", "Failed") if is_true(job, kind)), "")
            if uid in known and result:
                gone.add(uid)
                self._say(item, "SawCompletedJob", f"Saw completed job: {name}, condition: {result}")
            elif uid not in known and not result:
                text = f"Saw a job that the controller did not create or forgot: {name}"
                self._say(item, "UnexpectedJob", text, WARNING)
            ended = (job.get("status") or {}).get("completionTime")
            if result == "Complete" and ended:
                status["lastSuccessfulTime"] = max(ended, status["lastSuccessfulTime"] or "")
        for each in status["active"]:
            # What was just made is perhaps not shown yet.
            if each["uid"] not in shown and not self._is_there(each):
                gone.add(each["uid"])
                self._say(item, "MissingJob", f"Active job went missing: {each['name']}")
        status["active"] = [each for each in status["active"] if each["uid"] not in gone]
        return status

    def _is_there(self, reference: Object) -> bool:
        try:
            self.client.get(JOBS, reference["name"], reference["namespace"])
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def _follow_schedule(self, item: Object, status: Json) -> float | None:
        """Makes the Job that is due; seconds until the next is."""
        try:
            schedule = schedule_of(item)
        except zoneinfo.ZoneInfoNotFoundError as error:
            self._say(item, "UnknownTimeZone", f'invalid timeZone: "{item["spec"]["timeZone"]}": {error}', WARNING)
            return None
        except ValueError as error:
            text = f'unparseable schedule: "{item["spec"]["schedule"]}" : {error}'
            self._say(item, "UnparseableSchedule", text, WARNING)
            return None
        moment = self._clock()
        since = seen_until(item)
        then = schedule.following(schedule.latest(since, moment) or since)
        if then is None:
            text = f"invalid schedule: {item['spec']['schedule']} : it names no time"
            self._say(item, "InvalidSchedule", text, WARNING)
            return None
        start = due(item, schedule, moment)
        if start is not None:
            self._start(item, status, schedule, start, moment)
        return max(0.0, (then - moment).total_seconds()) + _LATE

    def _start(
        self, item: Object, status: Json, schedule: Fields | Every, start: datetime.datetime, moment: datetime.datetime
    ) -> None:
        wanted, active = job_of(item, start), status["active"]
        if any(each["name"] == wanted["metadata"]["name"] for each in active):
            return  # of an earlier time in the same minute
        if missed(item, schedule, moment) > _MANY:
            text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            self._say(item, "TooManyMissedTimes", text, WARNING)
        policy = item["spec"].get("concurrencyPolicy")
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._say(item, "JobAlreadyActive", text)
            return
        if policy == "Replace":
            for each in active:
                self._delete(item, {"metadata": each})
            status["active"] = []
        made = self._create(item, wanted)
        if made is None:
            return
        meta = made["metadata"]
        reference = {name: meta[name] for name in ("name", "namespace", "resourceVersion", "uid")}
        status["active"] = [*status["active"], {"apiVersion": "batch/v1", "kind": "Job", **reference}]
        status["lastScheduleTime"] = timestamp(start)

    def _create(self, item: Object, body: Json) -> Object | None:
        """The new Job, or one that was made before and that the status does not have; None if that is another's."""
        namespace, name = item["metadata"]["namespace"], body["metadata"]["name"]
        try:
            made: Object = self.client.create(JOBS, body, namespace).raw
        except ApiError as error:
            if error.code != 409:
                self._say(item, "FailedCreate", f"Error creating job: {error.message}", WARNING)
                raise
            there = self.client.get(JOBS, name, namespace).raw
            return there if (controller_of(there) or {}).get("uid") == item["metadata"]["uid"] else None
        self._say(item, "SuccessfulCreate", f"Created job {name}")
        return made

    def _delete(self, item: Object, job: Object) -> None:
        if delete_object(self.client, JOBS, job, propagation_policy="Background"):
            self._say(item, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")

    def _say(self, item: Object, reason: str, text: str, type: str = NORMAL) -> None:
        self.recorder.event(item, _KIND, reason, text, type=type)
