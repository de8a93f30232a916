"""Structured logs."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from kproxy.agent import log
from kproxy.agent.log import event


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.getLogger("kproxy").setLevel(logging.NOTSET)


def test_text_lines() -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    event("synced", family="IPv4", rules=3, steps={"write": 0.1}, changed="", failed=None, zero=0)
    event("sync failed", level=logging.ERROR, error='two\nlines "quoted"')
    event("hidden", level=logging.DEBUG)
    first, second = stream.getvalue().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
    assert re.fullmatch(rf'I{stamp} synced family="IPv4" rules=3 steps={{"write":0\.1}} zero=0', first)
    assert re.fullmatch(rf'E{stamp} sync failed error="two\\nlines \\"quoted\\""', second)


def test_json_lines_and_verbosity() -> None:
    stream = io.StringIO()
    log.configure(json=True, verbosity=4, stream=stream)
    event("shown", level=logging.DEBUG, family="IPv6")
    logging.getLogger("kproxy.client").warning("from %s", "elsewhere")
    try:
        raise ValueError("a bug")
    except ValueError as error:
        event("bug", level=logging.ERROR, exception=error)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["level"], line["msg"]) for line in lines] == [
        ("debug", "shown"), ("warning", "from elsewhere"), ("error", "bug"),
    ]  # fmt: skip
    assert lines[0]["family"] == "IPv6"
    assert "ValueError: a bug" in lines[2]["stacktrace"]


def test_a_message_of_several_paragraphs_is_one_line() -> None:
    record = logging.LogRecord("kproxy", logging.WARNING, "x.py", 1, "not found\n\n  \ninstall it\n", None, None)
    assert log.TextFormatter().format(record).endswith(" not found; install it")
