"""client-go's informer machinery as state machines: no I/O, no sleeping; time and randomness come in as arguments.

    server ── LIST, WATCH ──> Reflector ──> DeltaFIFO ──> Indexer ──> Listeners ──> handlers ──> WorkQueue
               (driver)                  SharedInformer                 (driver)

`kproxy.client` drives them. docs/informer.md is the page for users and testers.
"""

from kproxy.informer.codec import Unstructured
from kproxy.informer.delta_fifo import DeltaFIFO
from kproxy.informer.objects import DeletedFinalStateUnknown
from kproxy.informer.reflector import Reflector, ReflectorOptions
from kproxy.informer.selectors import Requirement, matches_labels, matching, selector_matches
from kproxy.informer.shared import Listener, ResourceEventHandlerFuncs, SharedInformer
from kproxy.informer.store import Indexer, Lister, Store, label_index_func
from kproxy.informer.workqueue import WorkQueue

__all__ = [
    "DeletedFinalStateUnknown",
    "DeltaFIFO",
    "Indexer",
    "Listener",
    "Lister",
    "Reflector",
    "ReflectorOptions",
    "Requirement",
    "ResourceEventHandlerFuncs",
    "SharedInformer",
    "Store",
    "Unstructured",
    "WorkQueue",
    "label_index_func",
    "matches_labels",
    "matching",
    "selector_matches",
]
