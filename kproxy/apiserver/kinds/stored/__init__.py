"""Kinds that are only stored for others to act on, with Kubernetes' defaults and validation: one row each.

A row (row.py) says all there is of a kind: its names, what its status starts as, what may not change, and tables of
defaults and of what its fields must be (rules.py). `resources.py` makes it a resource, `strategy_of` what it does
beyond being stored. Nothing here runs a Job or calls a webhook: what no other component could make good says so in a
warning.

Sources: kubernetes/kubernetes pkg/apis/*/v1/defaults.go, pkg/apis/*/validation, pkg/registry/*/*/strategy.go.
"""

from typing import Final

from kproxy.apiserver.kinds.stored import admission, cluster, workloads
from kproxy.apiserver.kinds.stored.row import Kind, Subresource, strategy_of

ROWS: Final = (*workloads.ROWS, *cluster.ROWS, *admission.ROWS)
"""Every kind that is only stored."""

__all__ = ["ROWS", "Kind", "Subresource", "strategy_of"]
