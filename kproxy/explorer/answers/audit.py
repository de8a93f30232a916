"""The audit, as `kproxy audit -o json` prints it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.report import AuditReport
from kproxy.explorer.errors import cannot
from kproxy.explorer.model.model import Model, Work


def audit_report(
    model: Model,
    work: Work,
    make: Callable[[], AuditReport | msgspec.Raw] | None = None,
    tell: Callable[[str], None] = lambda _what: None,
) -> object:
    """What is wrong in the cluster: a `Report`, or the JSON of one.

    Args:
        make: makes it elsewhere, if not here.
        tell: gets what is being judged: `worker-1 (1 of 3)`.

    Raises:
        Refusal: the nodes' rules are made from the objects, or it takes too long.
    """
    if model.known.rendered:
        raise cannot("the rules are made from the objects here: an audit needs a snapshot with rules, or a lab")
    # Not the lock of questions, which go on meanwhile; and one audit serves all who ask for it.
    with model.audit_lock:
        if model.audited is None:

            def judged(what: str) -> None:
                work.check()
                model.judging = what
                tell(what)

            model.audited = audit(model.cluster, judged) if make is None else make()
        return model.audited
