"""Errors of a CNI plugin: the codes of the CNI specification, section 2, "Error", and our own from 100."""

from __future__ import annotations

from enum import IntEnum

from kproxy.errors import KproxyError


class Code(IntEnum):
    """`code` of an error result. Up to 99 they are the specification's."""

    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    INVALID_ENVIRONMENT = 4
    IO_FAILURE = 5
    DECODE_FAILURE = 6
    INVALID_CONFIG = 7
    TRY_AGAIN_LATER = 11
    NOT_AVAILABLE = 50
    LIMITED_CONNECTIVITY = 51
    KERNEL_REFUSED = 100
    NOT_PERMITTED = 101
    RANGE_EXHAUSTED = 102
    NAME_TAKEN = 103
    ALREADY_ATTACHED = 104
    PORT_MAPPING_FAILED = 105
    CHECK_FAILED = 106
    STATE_CORRUPT = 107
    ADDRESS_TAKEN = 108
    PORT_TAKEN = 109
    INTERNAL = 110


class CniError(KproxyError):
    """A CNI operation that failed: `msg` is short, `details` says the rest."""

    def __init__(self, code: Code, msg: str, details: str = "") -> None:
        super().__init__(f"{msg}: {details}" if details else msg)
        self.code = code
        self.msg = msg
        self.details = details
