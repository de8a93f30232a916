"""The audit, as `kproxy audit -o json` prints it."""

from __future__ import annotations

from kproxy.cluster.audit import Report, audit
from kproxy.explorer.errors import cannot
from kproxy.explorer.model import Model, Work


def audit_report(model: Model, work: Work) -> Report:
    """What is wrong in the cluster.

    Raises:
        Refusal: the nodes' rules are made from the objects, or it takes too long.
    """
    if model.known.rendered:
        raise cannot("the rules are made from the objects here: an audit needs a snapshot with rules, or a lab")
    with model.lock:
        return audit(model.cluster, work.check)
