"""What a reflector asks of its driver: the requests, how they are to be made, and when to wait."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReflectorOptions:
    """How to list and watch. Times in seconds.

    `min_watch_timeout` is client-go's: the server is asked to end each watch after it times a random factor in [1, 2).
    `list_timeout` is how long the answer to a LIST may be silent. A watch that was silent for `idle_timeout` is begun
    again on another connection. That is no failure: kube-apiserver sends a bookmark about every minute, others may have
    nothing to say for longer. client-go asks the same connection instead, by HTTP/2's pings.
    `initial_events_timeout` is how long a streaming initial list may be silent before plain LIST is tried, for servers
    that ignore the option. `watch_list_pause` is how long WATCH_LIST is not tried again after it failed.
    """

    page_size: int = 500
    watch_list: bool = True
    min_watch_timeout: float = 300.0
    list_timeout: float = 60.0
    idle_timeout: float = 180.0
    initial_events_timeout: float = 10.0
    watch_list_pause: float = 600.0


@dataclass(frozen=True, slots=True)
class ListRequest:
    """LIST one page. `limit` 0 is no limit; `timeout`: seconds of silence after which it has failed."""

    resource_version: str
    limit: int
    continue_token: str
    timeout: float


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """WATCH with bookmarks.

    `timeout_seconds` goes to the server. After `idle_timeout` seconds of silence the driver closes the stream and
    reports `stream_silent`; `total_timeout` seconds after the start it gives up whatever comes, and reports a failure.
    """

    resource_version: str
    send_initial_events: bool
    timeout_seconds: int
    idle_timeout: float
    total_timeout: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for `seconds`, then ask again; asking earlier does no harm."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """A stream is open: report what it brings."""


@dataclass(frozen=True, slots=True)
class Stop:
    """`stop` was called: close what is open and leave."""


Action = ListRequest | WatchRequest | Wait | Read | Stop
