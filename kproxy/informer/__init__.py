"""client-go's informer machinery as state machines: no I/O, no sleeping; time and randomness come in as arguments.

    server ── LIST, WATCH ──> Reflector ──> DeltaFIFO ──> Indexer ──> Listeners ──> handlers ──> WorkQueue
               (driver)                  SharedInformer                 (driver)

`kproxy.client` drives them. docs/informer.md is the page for users and testers.
"""

from kproxy.informer.actions import ListRequest, Read, ReflectorOptions, Stop, Wait, WatchRequest
from kproxy.informer.codec import LineReader, Unstructured, UnstructuredCodec
from kproxy.informer.delta_fifo import Delta, DeltaFIFO, DeltaType
from kproxy.informer.listener import (
    Listener,
    ResourceEventHandler,
    ResourceEventHandlerFuncs,
)
from kproxy.informer.objects import (
    DeletedFinalStateUnknown,
    EventType,
    ListPage,
    Status,
    WatchEvent,
    WireError,
)
from kproxy.informer.ratelimit import (
    BackoffManager,
    BucketRateLimiter,
    ItemExponentialFailureRateLimiter,
    MaxOfRateLimiter,
    TokenBucket,
    default_controller_rate_limiter,
)
from kproxy.informer.reflector import Reflector
from kproxy.informer.selectors import Requirement, matches_labels, matching, selector_matches
from kproxy.informer.shared import SharedInformer
from kproxy.informer.store import (
    NAMESPACE_INDEX,
    Indexer,
    Lister,
    Store,
    label_index_func,
    meta_namespace_index_func,
)
from kproxy.informer.workqueue import Work, WorkQueue

__all__ = [
    "NAMESPACE_INDEX",
    "BackoffManager",
    "BucketRateLimiter",
    "DeletedFinalStateUnknown",
    "Delta",
    "DeltaFIFO",
    "DeltaType",
    "EventType",
    "Indexer",
    "ItemExponentialFailureRateLimiter",
    "LineReader",
    "ListPage",
    "ListRequest",
    "Listener",
    "Lister",
    "MaxOfRateLimiter",
    "Read",
    "Reflector",
    "ReflectorOptions",
    "Requirement",
    "ResourceEventHandler",
    "ResourceEventHandlerFuncs",
    "SharedInformer",
    "Status",
    "Stop",
    "Store",
    "TokenBucket",
    "Unstructured",
    "UnstructuredCodec",
    "Wait",
    "WatchEvent",
    "WatchRequest",
    "WireError",
    "Work",
    "WorkQueue",
    "default_controller_rate_limiter",
    "label_index_func",
    "matches_labels",
    "matching",
    "meta_namespace_index_func",
    "selector_matches",
]
