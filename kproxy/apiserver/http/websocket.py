"""WebSockets, for pods/exec: uvicorn's protocol over wsproto."""

from __future__ import annotations

import logging
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

log = logging.getLogger(__name__)
log.setLevel(logging.ERROR)


class WebSocket(WSProtocol):
    """uvicorn's protocol, which says nothing of each connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logger = log
