"""--without: a cluster in which Pods, nodes or Services are gone."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kproxy.api import Manifests
from kproxy.api.load.manifests import load_contents
from kproxy.api.load.reader import RawObject
from kproxy.errors import InputError, KproxyError

if TYPE_CHECKING:
    from kproxy.explorer.edits import Edit

_GONE: Final[dict[str, bool | str]] = {"ready": False, "serving": False}


def manifests_without(objects: Sequence[RawObject], refs: Sequence[str], namespace: str) -> Manifests:
    """A cluster's objects without what `refs` name.

    A Pod's endpoints, or those of an address, are there and not ready, as while it is deleted; a node is gone with its
    Pods and their endpoints, a Service with its EndpointSlices.

    Args:
        namespace: of names that say none.

    Raises:
        InputError: there is no such thing.
    """
    from kproxy.explorer.edits import by_key, edit

    found = by_key(objects)
    edits = [_edit(ref, namespace) for ref in refs]
    for ref, each in zip(refs, edits, strict=True):
        try:
            edit(found, [each])
        except KproxyError as error:
            raise InputError(f"--without {ref}: {str(error).partition(': ')[2]}") from error
    items = list(edit(found, edits).objects.values())
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    return load_contents({f"without {', '.join(refs)}": text.encode()}).with_mirrored_slices()


def _edit(ref: str, namespace: str) -> Edit:
    """The edit that a reference asks for. Raises InputError."""
    from kproxy.explorer.edits import Edit

    kind, _, name = ref.partition("/")
    if kind == "node" and name:
        return Edit("drop-node", node=name)
    if kind in ("pod", "svc") and name:
        name = name if "/" in name else f"{namespace}/{name}"
        return Edit("endpoint", pod=name, set=_GONE) if kind == "pod" else Edit("delete", service=name)
    try:
        return Edit("endpoint", address=str(ipaddress.ip_address(ref)), set=_GONE)
    except ValueError:
        raise InputError(
            f"--without {ref}: pod/NS/NAME, node/NAME, svc/NS/NAME or the address of an endpoint expected"
        ) from None
