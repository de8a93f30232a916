"""Errors of the data-plane model."""

from __future__ import annotations

from kproxy.errors import InputError, KproxyError


class DataplaneError(InputError):
    """The model cannot work with what it was given: a rule set the kernel would refuse, or a packet that makes no
    sense."""


class HostError(InputError):
    """A description of a host cannot be used. `field` is the path of the field at fault, such as `routes[0].to`."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: {expected}" if field else expected)
        self.field = field


class BoundReachedError(KproxyError):
    """A question takes more time or memory than there is for it; the message says which."""

    exit_code = 2
