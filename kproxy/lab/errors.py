"""What can go wrong with a lab."""

from __future__ import annotations

from kproxy.errors import InputError, KproxyError


class LabError(KproxyError):
    """The lab cannot do what was asked."""


class LabInputError(LabError, InputError):
    """An invalid name, flag or target."""

    exit_code = 2


class NoSuchPodError(LabInputError):
    """No pod has the name."""
