"""Which format a file's content is in: JSON, JSON lines or YAML."""

from __future__ import annotations

from typing import Final

import msgspec

from kproxy.api.document.json_text import split_json
from kproxy.api.document.tree import DocumentError
from kproxy.api.document.yaml_text import read_yaml

BROKEN: Final = (msgspec.MsgspecError, RecursionError, ValueError)
"""What decoding of broken JSON raises."""

_YAML_RETRY: Final = 4 << 20
"""Bytes up to which text that looks like JSON but is not valid is tried as YAML flow style: that parser is slow."""


def is_flow_yaml(file: str, data: bytes, text: str) -> bool:
    """Whether content that starts with `{` is YAML and not JSON; a .json file may be JSON between `---` lines."""
    if (file.endswith(".json") and b"\n---" not in data) or len(data) > _YAML_RETRY or _is_json(data):
        return False
    try:
        for _ in read_yaml(text):
            pass
    except DocumentError:
        return False
    return True


def is_one_json(data: bytes) -> bool:
    """Whether content is one JSON document."""
    try:
        msgspec.json.decode(data)
    except BROKEN:
        return False
    return True


def is_json_lines(data: bytes) -> bool:
    """Whether content is JSON lines: several lines of which the first is an object. JSON printed prettily is not."""
    first, _, rest = data.lstrip().partition(b"\n")
    if not rest.strip():
        return False
    try:
        msgspec.json.decode(first, type=msgspec.Raw)
    except BROKEN:
        return False
    return rest.lstrip().startswith(b"{")


def _is_json(data: bytes) -> bool:
    """Whether every document is JSON, of content that starts like it."""
    if is_json_lines(data):
        return True
    try:
        for _, piece in split_json(data):
            msgspec.json.decode(piece, type=msgspec.Raw)
    except BROKEN:
        return False
    return True
