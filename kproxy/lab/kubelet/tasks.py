"""Containers that run a command to its end: those of a Job's pods, and of others that are not always restarted. Their
init containers run before, one after another.

No image is there, so nothing is known of what a container would run by itself. A pod whose restartPolicy is Always has
echo servers (`echo`). In one whose restartPolicy is OnFailure or Never, `command` and `args` are really executed: in
the pod's network, by this machine's programs, as root. Its files are this machine's and cannot be written, but for an
empty /tmp: a manifest from somewhere shall not do harm here. A container of a Job without a
command ends at once.

A command is asked to end by SIGTERM, and killed with all that it started when it ends or its time is over.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Final

from kproxy.lab.kubelet.commands import spawn
from kproxy.lab.kubelet.environment import environment, expand
from kproxy.lab.kubelet.logs import PodLogs
from kproxy.lab.kubelet.podspec import containers_of, hostname_of, init_containers_of, words_of
from kproxy.lab.kubelet.status import Ended, Task
from kproxy.lab.resources import Object, now, timestamp
from kproxy.linux.errors import LinuxError

log = logging.getLogger(__name__)

_BACK_OFF: Final = 1.0
"""Seconds before the first restart; each is twice the last. A cluster's kubelet begins with 10."""
_MAX_BACK_OFF: Final = 300.0
_KILLED: Final = 137
_START_ERROR: Final = 128


class Tasks:
    """The commands of a node's pods.

    Args:
        changed: called with a pod's uid when one of its commands ends.
    """

    def __init__(self, changed: Callable[[str], None], logs: PodLogs) -> None:
        self._changed = changed
        self._logs = logs
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, Task]] = {}

    def run(self, pod: Object, netns: str, files: Mapping[str, str]) -> list[str]:
        """Starts what is to be started now, the first time or again; the names of those containers. `files` are seen by
        the commands in place of this machine's."""
        uid = str(pod["metadata"]["uid"])
        policy = str(pod["spec"].get("restartPolicy", "Always"))
        begun = []
        with self._lock:
            tasks = self._tasks.get(uid)
            if tasks is None:
                tasks = self._tasks[uid] = _found(pod, policy)
            first = init_containers_of(pod)
            for number, container in enumerate((*first, *containers_of(pod))):
                name = str(container["name"])
                task = tasks[name]
                if task.process is None and (task.ended is None or _is_due(task)):
                    self._start(pod, container, task, netns, files)
                    begun.append(name)
                if number < len(first) and not tasks[name].succeeded:
                    break
        return begun

    def states(self, uid: str) -> Mapping[str, Task]:
        """How a pod's containers are now, by name."""
        with self._lock:
            return {name: copy.copy(task) for name, task in self._tasks.get(uid, {}).items()}

    def is_initialized(self, pod: Object) -> bool:
        """Whether what runs before the containers has ended well."""
        states = self.states(str(pod["metadata"]["uid"]))
        names = [str(each["name"]) for each in init_containers_of(pod)]
        return all(name in states and states[name].succeeded for name in names)

    def left(self, uid: str) -> float | None:
        """Seconds until one is restarted."""
        due = [task.again for task in self.states(uid).values() if task.again is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def is_running(self, uid: str) -> bool:
        return any(task.process is not None for task in self.states(uid).values())

    def signal(self, uid: str, number: int) -> None:
        """Sends a signal to all that a pod's commands have started."""
        for task in self.states(uid).values():
            if task.process is not None:
                _signal(task.process.pid, number)

    def forget(self, uid: str) -> None:
        """Kills what still runs of a pod."""
        self.signal(uid, signal.SIGKILL)
        with self._lock:
            self._tasks.pop(uid, None)

    def _start(self, pod: Object, container: Object, task: Task, netns: str, files: Mapping[str, str]) -> None:
        name, uid = str(container["name"]), str(pod["metadata"]["uid"])
        policy = str(pod["spec"].get("restartPolicy", "Always"))
        if task.ended is not None:
            task.last, task.restarts = task.ended, task.restarts + 1
        task.ended, task.again, task.started = None, None, timestamp(now())
        values = environment(pod, name)
        words = [expand(word, values) for word in words_of(container)]
        if not words:
            text = f"{name}: an image's own program is not known to a lab; nothing is run, and it ends well"
            self._logs.add(uid, text, name)
            _end(task, Ended(0, "Completed", text, task.started, task.started), policy)
            return
        try:
            task.process = spawn(
                words, netns, hostname_of(pod), files, read_only=True, env=values,
                cwd=str(container.get("workingDir") or "/"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        except (OSError, LinuxError) as error:
            self._logs.add(uid, f"{name}: {error}", name)
            _end(task, Ended(_START_ERROR, "StartError", str(error), task.started, task.started), policy)
            return
        threading.Thread(target=self._wait, args=(uid, name, task, policy), name=f"task {name}", daemon=True).start()

    def _wait(self, uid: str, name: str, task: Task, policy: str) -> None:
        process = task.process
        assert process is not None
        assert process.stdout is not None
        reading = threading.Thread(target=self._read, args=(uid, name, process.stdout), daemon=True)
        reading.start()
        # Its number stays its own until it is taken by `wait`, so nobody else's group is meant.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        _signal(process.pid, signal.SIGKILL)
        code = process.wait()
        reading.join()
        number = code if code >= 0 else 128 - code
        reason = "Error" if number else "Completed"
        with self._lock:
            _end(task, Ended(number, reason, "", task.started, timestamp(now())), policy)
        self._changed(uid)

    def _read(self, uid: str, name: str, output: IO[bytes]) -> None:
        with output:
            for line in output:
                self._logs.add(uid, line.rstrip(b"\r\n").decode(errors="replace"), name)


def _found(pod: Object, policy: str) -> dict[str, Task]:
    """The tasks of a pod that is new to this kubelet: what an earlier one had begun has ended with it."""
    tasks = {str(item["name"]): Task() for item in (*init_containers_of(pod), *containers_of(pod))}
    known = pod.get("status") or {}
    for status in (*(known.get("initContainerStatuses") or ()), *(known.get("containerStatuses") or ())):
        task, state = tasks.get(str(status.get("name"))), status.get("state") or {}
        if task is None:
            continue
        task.restarts = int(status.get("restartCount") or 0)
        if ended := state.get("terminated"):
            code, reason = int(ended.get("exitCode", 0)), str(ended.get("reason", ""))
            started, finished = str(ended.get("startedAt") or ""), str(ended.get("finishedAt") or "")
            task.started = started
            _end(task, Ended(code, reason, "", started, finished), policy)
        elif running := state.get("running"):
            task.started = str(running.get("startedAt") or "")
            text = "The container could not be located when the kubelet started"
            _end(task, Ended(_KILLED, "ContainerStatusUnknown", text, task.started, timestamp(now())), policy)
    return tasks


def _end(task: Task, ended: Ended, policy: str) -> None:
    task.process, task.ended = None, ended
    if policy == "OnFailure" and ended.code:
        task.again = time.monotonic() + min(_MAX_BACK_OFF, _BACK_OFF * 2**task.restarts)


def _is_due(task: Task) -> bool:
    return task.again is not None and task.again <= time.monotonic()


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
