"""Comparisons of all rules of a large cluster, and its audit, answered by a process of their own.

They keep a core busy for a minute or more. In a thread they would take every other slice of the interpreter's lock from
the questions beside them, and nothing can end a thread; a process has a core of its own, gives way to the server
(`nice`), and is killed when nobody waits any more. It gets what the source said, reads it again, and answers as the
server would have.
"""

from __future__ import annotations

import contextlib
import copyreg
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import IO, Any, Final

import msgspec

from kproxy.cluster.snapshot.cluster import Cluster
from kproxy.errors import KproxyError
from kproxy.explorer.answers.audit import audit_report
from kproxy.explorer.compare.compare import Compare, WhatIf, compare_sides, what_if
from kproxy.explorer.errors import Refusal
from kproxy.explorer.model.model import Model, Work
from kproxy.explorer.page import encode
from kproxy.explorer.sources.rendering import RenderedCluster
from kproxy.explorer.sources.source import ReadSource, SourceState
from kproxy.explorer.state import Explorer

LARGE: Final = 1000
"""Services of a cluster from which on comparisons of all its rules have a process of their own."""
AUDITED_HERE: Final = 600
"""Nodes times Services and Pods: so much is audited in about a second, beside questions; more in a process of its
own."""
_LOOK: Final = 0.1
"""Seconds between two looks at whether somebody still waits."""
_SHARE: Final = 0.75
"""Of the time that there is, what comparisons take: the answer has to be put together and sent."""
_ENDING: Final = 60
"""Seconds after its time after which the process is ended."""
_NICE: Final = 5
ARGUMENTS: Final = ("-m", "kproxy.explorer.comparison_worker")
_ANSWER, _REFUSAL = b"+", b"-"
_SAID: Final = b"judging "
_is_process = False


def _unchanging(held: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(held)


# Configurations hold mappings that nobody changes; pickle has no way of its own for them.
copyreg.pickle(MappingProxyType, lambda held: (_unchanging, (dict(held),)))


class Audit(msgspec.Struct, frozen=True):
    """Asks for the audit."""


Body = WhatIf | Compare


def compared(explorer: Explorer, body: Body, work: Work) -> bytes:
    """The answer to what-if or a comparison, as JSON.

    Raises:
        Refusal: something in the question is wrong, or it takes too long.
        KproxyError: something of the source cannot be read.
    """
    states = [explorer.model, *filter(None, [explorer.second])]
    if _compares_all_rules(body) and any(map(_is_large, states)) and all(each.known.files for each in states):
        return _elsewhere(explorer, body, work)
    return encode(_answer(explorer, body, work.part(_SHARE)))


def audited(explorer: Explorer, work: Work) -> bytes:
    """The audit of the page's source, as JSON.

    Raises:
        Refusal: the nodes' rules are made from the objects, or it takes too long.
    """
    model = explorer.model
    objects = len(model.manifests.services) + len(model.cluster.pods)
    if len(model.nodes) * objects <= AUDITED_HERE or model.known.files is None:
        return encode(audit_report(model, work))

    def told(what: str) -> None:
        model.judging = what

    return encode(audit_report(model, work, lambda: msgspec.Raw(_elsewhere(explorer, Audit(), work, told))))


def _compares_all_rules(body: Body) -> bool:
    """Whether it is about all rules of nodes, and not only about those of the Services that edits change."""
    edits = body.edits if isinstance(body, WhatIf) else (*body.a.edits, *body.b.edits)
    if isinstance(body, WhatIf) and not body.compare:
        return False
    return isinstance(body, Compare) or any(each.do == "mode" for each in edits)


def _is_large(model: Model) -> bool:
    return model.known.cluster is not None and len(model.manifests.services) > LARGE


def _answer(explorer: Explorer, body: Body | Audit, work: Work) -> object:
    if isinstance(body, Audit):
        return audit_report(explorer.model, work, tell=_say)
    if isinstance(body, WhatIf):
        return what_if(explorer.model, explorer.copy_with(body.edits), body, work)
    one, other = (explorer.state(each.source, each.edits) for each in (body.a, body.b))
    return compare_sides(one, other, body, work)


# --- the server's side ---


@dataclass(frozen=True)
class _Task:
    """What the process is given."""

    sources: tuple[_Said, ...]
    revision: int
    body: Body | Audit
    seconds: float


def _elsewhere(
    explorer: Explorer, body: Body | Audit, work: Work, told: Callable[[str], None] = lambda _what: None
) -> bytes:
    sources = [(explorer.source.kind, explorer.model)]
    if explorer.against is not None and explorer.second is not None:
        sources.append((explorer.against.kind, explorer.second))
    said = tuple(_Said(kind, replace(model.known, cluster=None)) for kind, model in sources)
    share = 1.0 if isinstance(body, Audit) else _SHARE  # there is no part of an audit
    task = pickle.dumps(_Task(said, explorer.model.revision, body, work.left * share))
    command = [sys.executable, *ARGUMENTS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            answer = _until_told(process, task, work.check, told)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    if answer[:1] == _ANSWER:
        return answer[1:]
    if answer[:1] == _REFUSAL:
        status, message, field, away = pickle.loads(answer[1:])
        raise Refusal(status, message, field, away=away)
    raise Refusal(
        503, "the answering process ended early: it may need more memory than there is; ask about fewer nodes"
    )


def _until_told(
    process: subprocess.Popen[bytes], task: bytes, check: Callable[[], None], told: Callable[[str], None]
) -> bytes:
    """What a process writes until it ends, which is looked for again and again; `told` gets how far it is."""
    # Not by `communicate`: after a timeout it does not go on with what a pipe did not take at once (CPython 3.11).
    assert process.stdin is not None
    threading.Thread(target=_send, args=(process.stdin, task), daemon=True).start()
    assert process.stderr is not None
    threading.Thread(target=_hear, args=(process.stderr, told), daemon=True).start()
    process.stdin = process.stderr = None
    while True:
        check()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_LOOK)[0]


def _send(pipe: IO[bytes], task: bytes) -> None:
    """Writes to a process, which may end before it has read all."""
    with contextlib.suppress(OSError), pipe:
        pipe.write(task)


def _hear(pipe: IO[bytes], told: Callable[[str], None]) -> None:
    """Hears how far a process is, until it ends. What else it writes is an error's text, for which nobody waits."""
    with pipe:
        for line in pipe:
            if line.startswith(_SAID):
                told(line.removeprefix(_SAID).decode(errors="replace").strip())


# --- the process ---


def _say(what: str) -> None:
    """How far it is, if this is the process."""
    if _is_process:
        sys.stderr.buffer.write(_SAID + what.encode(errors="replace") + b"\n")
        sys.stderr.buffer.flush()


class _Said(ReadSource):
    """A source as it was read before: the cluster is made again from its files."""

    def read(self) -> SourceState:
        known, files = self.known, self.known.files
        assert files is not None
        cluster = Cluster(files)
        if known.rendered:
            cluster = RenderedCluster(
                files,
                known.config,
                known.features,
                known.mode,
                known.allocate,
                known.endpoints,
                complete=known.complete,
            )
        cluster.label = known.label
        return replace(known, cluster=cluster)


def _told(task: _Task, work: Work) -> bytes:
    try:
        explorer = Explorer(task.sources[0], against=next(iter(task.sources[1:]), None), revision=task.revision)
        return _ANSWER + encode(_answer(explorer, task.body, work))
    except Refusal as error:
        refused: tuple[Any, ...] = (error.status, str(error), error.field, error.away)
    except KproxyError as error:
        refused = (503, str(error), "", True)
    return _REFUSAL + pickle.dumps(refused)


def _end(work: Work, *_signal: object) -> None:
    """Ends a step of a comparison midway: what is known by then is the answer. What the answer cannot do without, the
    source as it is read and the map, goes on."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_ENDING)
    work.end()
    if work.in_step:
        work.check()


def main() -> None:
    """Reads a task from standard input and writes what the server is to answer."""
    global _is_process
    _is_process = True
    os.nice(_NICE)
    # Started by kproxy as this same user, and fed by it alone: what comes in is its own.
    task = pickle.loads(sys.stdin.buffer.read())
    work = Work(task.seconds)
    signal.signal(signal.SIGALRM, partial(_end, work))
    signal.setitimer(signal.ITIMER_REAL, task.seconds)
    sys.stdout.buffer.write(_told(task, work))


if __name__ == "__main__":
    # What is read is of the module's name, not of this one's.
    from kproxy.explorer import comparison_worker

    comparison_worker.main()
