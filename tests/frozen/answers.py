"""The frozen answers: `python -m tests.frozen.answers` writes them anew, all or those of the groups named.

An answer is the exit code and the JSON of a command, without prose: what is said to people may be said better, and
everything else stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from click.testing import CliRunner

from kproxy.cli.main import group
from kproxy.errors import KproxyError
from tests.frozen.questions import Question, groups
from tests.support.cluster.snapshots import write_files

FOLDER = Path(__file__).with_name("recorded")
PROSE = frozenset(
    {
        *("advice", "assumptions", "details", "do", "facts", "hint", "hints", "notes", "reason", "reasons"),
        *("setting", "skipped", "then", "title", "today", "why", "whyNot"),
    }
)
"""Fields that hold sentences. Words without a blank are kept: some of these fields name a kind, too."""
Answer = list[Any]
"""The exit code, and what was printed, decoded."""


def ask(question: Question) -> Answer:
    """The answer to a question, as it is now."""
    with TemporaryDirectory(prefix="kp-frozen-") as name:
        files = {path: text.encode() if isinstance(text, str) else text for path, text in question.files.items()}
        write_files(Path(name), files)
        with contextlib.chdir(name):
            result = CliRunner().invoke(group, [*question.words, "-o", "json"])
    error = result.exception
    if isinstance(error, KproxyError):
        return [error.exit_code]
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return [result.exit_code, *(_without_prose(document) for document in _documents(result.stdout))]


def _documents(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]


def _without_prose(value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {name: _without_prose(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_prose(item, key) for item in value]
    return "" if isinstance(value, str) and key in PROSE and " " in value else value


def recorded(name: str) -> dict[str, Answer]:
    """The frozen answers of a group, by question."""
    return json.loads(lzma.decompress((FOLDER / f"{name.replace(' ', '-')}.json.xz").read_bytes()))  # type: ignore[no-any-return]


def record(name: str) -> int:
    """Writes the answers of a group as they are now; how many."""
    answers = {title: ask(question) for title, question in groups()[name]}
    text = json.dumps(answers, separators=(",", ":"))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name.replace(' ', '-')}.json.xz").write_bytes(lzma.compress(text.encode()))
    return len(answers)


if __name__ == "__main__":
    for name in sys.argv[1:] or groups():
        sys.stderr.write(f"{name}: {record(name)} answers\n")
