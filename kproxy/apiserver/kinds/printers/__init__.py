"""What `kubectl get` shows: the columns of each kind, and how an object fills them.

The columns of `builtin` are recorded from kube-apiserver v1.36.2, but for StatefulSets and ReplicationControllers;
these, those of `storage` and `stored`, and all cells, follow pkg/printers/internalversion of kubernetes/kubernetes.
Priority 1 shows with `-o wide`.
"""

from kproxy.apiserver.kinds.printers import builtin, storage, stored
from kproxy.apiserver.kinds.printers.custom import custom_columns
from kproxy.apiserver.kinds.printers.table import DEFAULT, Columns, age, human_duration, labels_text, selector_text

KINDS: dict[str, Columns] = {**builtin.PRINTERS, **storage.PRINTERS, **stored.PRINTERS}

__all__ = [
    "DEFAULT",
    "KINDS",
    "Columns",
    "age",
    "custom_columns",
    "human_duration",
    "labels_text",
    "selector_text",
]
