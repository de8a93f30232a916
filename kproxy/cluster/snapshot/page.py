"""The page of `kproxy run` that gives the files of its node, as who answers and who asks know it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kproxy.errors import InputError

COLLECT: Final = "/debug/collect"
"""On the metrics port: a `.tar.gz` of `nodes/NAME/`."""
TOKEN_HEADER: Final = "x-kproxy-token"
"""Not Authorization: API servers keep that to themselves when they hand a request on to a node."""


def read_token(path: str) -> str:
    """The token of a file, without white space around it. Raises InputError: there is none."""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a token is ASCII"
        raise InputError(f"{path}: {reason}") from error
    if not token or not token.isprintable():
        raise InputError(f"{path}: {'a token on one line expected' if token else 'empty, where a token is expected'}")
    return token
