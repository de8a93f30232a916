"""What the explorer's server refuses, with the HTTP status that it answers."""

from __future__ import annotations

from kproxy.errors import KproxyError


class Refusal(KproxyError):  # noqa: N818 - an answer, more than an error
    """A request that is not answered.

    Attributes:
        status: HTTP's.
        field: of the request's body or query that is to blame, "" if none is.
        away: whether the source cannot be reached now.
    """

    def __init__(self, status: int, message: str, field: str = "", *, away: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.field = field
        self.away = away


def bad_input(message: str, field: str = "") -> Refusal:
    """400: the request is wrong."""
    return Refusal(400, message, field)


def not_found(message: str, field: str = "") -> Refusal:
    """404: there is no such thing."""
    return Refusal(404, message, field)


def cannot(message: str) -> Refusal:
    """409: the source cannot do that."""
    return Refusal(409, message)
