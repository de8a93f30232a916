"""Who may read this node by /debug/collect.

Rules, routes and connections of a node are what only root may see, so the page answers clients on this host, as the
other debug pages do. With a token file it answers whoever sends the token, and nobody else (docs/decisions/0004).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from kproxy.agent.status.ports import only_here
from kproxy.cluster.snapshot.script import TOKEN_HEADER, read_token
from kproxy.errors import InputError
from kproxy.httpd.protocol import Request


def access(token_file: str) -> Callable[[Request], str]:
    """Who may read this node: gives why a request may not, or "".

    Args:
        token_file: read at each request, since who mounts it may replace it; "" for none.
    """

    def objection(request: Request) -> str:
        if not token_file:
            return only_here(request)
        try:
            expected = read_token(token_file)
        except InputError as error:
            return f"nobody may see this: {error}"
        given = request.headers.get(TOKEN_HEADER, "")
        if hmac.compare_digest(given.encode(), expected.encode()):
            return ""
        return f"the token in {TOKEN_HEADER.title()} is {'wrong' if given else 'missing'}"

    return objection
