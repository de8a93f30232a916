"""Many packets: JSON lines, each a packet by the fields of `kproxy.dataplane.query.spec`, or a record of an earlier
trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from kproxy.cluster.inputs import read_text, text_label
from kproxy.dataplane import DataplaneError
from kproxy.dataplane.query.spec import Question, read_question, write_question
from kproxy.errors import InputError, Location
from kproxy.netfilter.family import protocol_name

Resolve = Callable[[Mapping[str, object]], Mapping[str, object]]


class Asked(NamedTuple):
    """A question and where it was read: empty for one from options."""

    question: Question
    source: str = ""


def read_packets(path: str, resolve: Resolve) -> list[Asked]:
    """Reads JSON lines; blank ones are skipped.

    Raises:
        InputError: every line that cannot be used, with file, line, field and what was expected; or there is no packet.
    """
    label = text_label(path)
    found: list[Asked] = []
    problems: list[str] = []
    for number, line in _lines(path):
        where = Location(label, line=number)
        try:
            found.append(Asked(read_question(resolve(_fields(line))), str(where)))
        except (DataplaneError, ValueError) as error:
            shown = line if len(line) <= 200 else f"{line[:200]}..."
            problems.append(f"{where}: {error}: {shown}")
    if problems:
        raise InputError("\n".join(problems))
    if not found:
        raise InputError(f"{label}: no packets")
    return found


def refusal_record(question: Question, error: InputError, source: str) -> dict[str, object]:
    """The answer about a packet that cannot be traced: no outcomes, and why."""
    return {"packet": write_question(question), "outcomes": [], "error": str(error), "source": source}


def refusal_line(question: Question, error: InputError) -> str:
    """The summary of a packet that cannot be traced."""
    packet = question.packet
    return f"{protocol_name(packet.protocol)} {packet.source} → {packet.destination}: error: {error}"


def _lines(path: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(read_text(path).removeprefix("\ufeff").split("\n"), 1):
        if line.strip():
            yield number, line.strip()


def _fields(line: str) -> Mapping[str, object]:
    try:
        value = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"a JSON object expected ({error})") from error
    if isinstance(value, dict) and isinstance(value.get("packet"), dict):
        value = value["packet"]
    if not isinstance(value, dict):
        raise ValueError("a JSON object expected")
    return value
