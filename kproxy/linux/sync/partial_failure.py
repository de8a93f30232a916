"""What state is left when one family of several has failed, or when a signal interrupts between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from kproxy.linux.errors import ApplyFailedError, KernelState, failure_message


def interrupted_after_rules(right: Sequence[str], left: Sequence[str], written: Sequence[str]) -> ApplyFailedError:
    """The error for an interruption after the rules of a family.

    Args:
        right: the families whose rules are right by now.
        left: those that nothing was done to yet.
        written: those of `right` that were written to.
    """
    what = "interrupted: stale connection tracking entries may be left"
    if not written:
        return ApplyFailedError(what, KernelState.UNCHANGED)
    if not left:
        return ApplyFailedError(what, KernelState.APPLIED)
    detail = f"the rules of {' and '.join(written)} are applied, those of {' and '.join(left)} are unchanged"
    return ApplyFailedError(what, KernelState.PARTLY_APPLIED, detail)


def family_failure(error: BaseException, family: str, written: Sequence[str]) -> ApplyFailedError:
    """An error of one family that names it, and those that were written to before it."""
    state = error.state if isinstance(error, ApplyFailedError) else KernelState.UNCHANGED
    detail = error.detail if isinstance(error, ApplyFailedError) else ""
    what = failure_message(error)
    if written:
        tail = f"the rules of {' and '.join(written)} are applied, those of {family} are {state.value}"
        detail = f"{tail}: {detail}" if detail and state is not KernelState.APPLIED else tail
        return ApplyFailedError(f"{family}: {what}", KernelState.PARTLY_APPLIED, detail)
    if state is KernelState.APPLIED:
        detail = f"those of {family}"
    return ApplyFailedError(f"{family}: {what}", state, detail)
