"""What can go wrong with a lab."""

from __future__ import annotations

from kproxy.errors import InputError, KproxyError


class LabError(KproxyError):
    """The lab cannot do what was asked."""


class LabInputError(LabError, InputError):
    """A name, a flag or a target that is no good."""

    exit_code = 2
