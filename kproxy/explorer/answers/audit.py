"""The audit, as `kproxy audit -o json` prints it."""

from __future__ import annotations

from kproxy.cluster.audit.audit import audit
from kproxy.cluster.audit.report import AuditReport
from kproxy.explorer.errors import cannot
from kproxy.explorer.model.model import Model, Work


def audit_report(model: Model, work: Work) -> AuditReport:
    """What is wrong in the cluster; made once, without the lock of questions, which go on meanwhile.

    Raises:
        Refusal: the nodes' rules are made from the objects, or it takes too long.
    """
    if model.known.rendered:
        raise cannot("the rules are made from the objects here: an audit needs a snapshot with rules, or a lab")

    def judged(what: str) -> None:
        work.check()
        model.judging = what

    if model.audited is None:
        model.audited = audit(model.cluster, judged)
    return model.audited
