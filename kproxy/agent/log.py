"""Structured logs on stderr: text as klog's structured lines, or JSON, a line each.

`event("message", key=value)` keeps the fields apart from the message: in the record's `fields`, where another module's
message may have some too.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

log: Final = logging.getLogger("kproxy.agent")

_LETTERS: Final = {logging.DEBUG: "D", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E"}


def event(message: str, *, level: int = logging.INFO, exception: BaseException | None = None, **fields: object) -> None:
    """Logs a message with fields; `exception` adds its traceback."""
    if log.isEnabledFor(level):
        log.log(level, message, extra={"fields": fields}, exc_info=exception)


class TextFormatter(logging.Formatter):
    """`I2026-11-21T05:14:00.123456Z synced family="IPv4" rules=12`."""

    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        parts = [f"{letter}{_time(record)} {_one_line(record.getMessage())}"]
        for name, value in _fields(record).items():
            shown = msgspec.json.encode(value).decode() if isinstance(value, str | list | dict) else str(value)
            parts.append(f"{name}={shown}")
        text = " ".join(parts)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One object a line, with kube-proxy's names: ts (milliseconds), level, msg."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def configure(*, json: bool = False, verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Sends the logs of the process to a stream, by default stderr. Verbosity 4 and more shows debug messages."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.getLogger("kproxy").setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found = getattr(record, "fields", {})
    return {name: value for name, value in found.items() if value not in ("", None)}


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _one_line(text: str) -> str:
    return "; ".join(line for line in text.splitlines() if line.strip())
