"""What `kubectl get` shows: the columns of each kind, and how an object fills them.

The columns of `builtin` are recorded from kube-apiserver v1.36.2, but for Jobs and StatefulSets; these, and all cells,
follow pkg/printers/internalversion of kubernetes/kubernetes. A kind that is only stored shows its name and age
(`AGED`). Priority 1 shows with `-o wide`.
"""

from kproxy.apiserver.kinds.printers.builtin import PRINTERS as KINDS
from kproxy.apiserver.kinds.printers.table import (
    AGED,
    DEFAULT,
    Columns,
    age,
    custom_columns,
    human_duration,
    labels_text,
    selector_text,
)

__all__ = [
    "AGED",
    "DEFAULT",
    "KINDS",
    "Columns",
    "age",
    "custom_columns",
    "human_duration",
    "labels_text",
    "selector_text",
]
