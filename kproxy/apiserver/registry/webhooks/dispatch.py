"""Admission webhooks: who is asked about a write, in which order, and what comes of the answers.

Mutating webhooks come first, one after the other by the names of their configurations; validating ones are asked all at
once. Source: k8s.io/apiserver pkg/admission/plugin/webhook (generic, mutating, validating, predicates).
"""

from __future__ import annotations

import asyncio
import logging
from itertools import product
from typing import Final

import msgspec

from kproxy.apiserver.errors import Json, StatusError, bad_request, denied, internal, not_found
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.coercion import typed
from kproxy.apiserver.registry.patching import patched_object
from kproxy.apiserver.registry.webhooks.call import Caller
from kproxy.apiserver.registry.webhooks.review import Answer, CallError, Write, read_answer, review_of
from kproxy.apiserver.registry.writes import JSON_PATCH
from kproxy.apiserver.storage.store import Store, Table
from kproxy.informer.selectors import selector_matches

log = logging.getLogger(__name__)
_GROUP: Final = "admissionregistration.k8s.io"


class Webhooks:
    """The webhooks that the configurations in a store name. `catalog` knows the versions of a kind."""

    def __init__(self, store: Store, catalog: Catalog, caller: Caller) -> None:
        self._mutating = store.table(f"mutatingwebhookconfigurations.{_GROUP}")
        self._validating = store.table(f"validatingwebhookconfigurations.{_GROUP}")
        self._namespaces = store.table("namespaces")
        self._catalog = catalog
        self._caller = caller

    async def mutate(self, write: Write) -> Json:
        """What the mutating webhooks make of the object, which is put into `write.value`, too; {} of a deletion.

        One that wants it (reinvocationPolicy IfNeeded) is asked once more if a later one has changed the object.

        Raises:
            StatusError: one denies the write, or could not be asked.
        """
        webhooks = self._hooks(self._mutating, write)
        before: set[int] = set()
        again: set[int] = set()
        for turn, (number, webhook) in product((1, 2), enumerate(webhooks)):
            target = self._matched(webhook, write) if turn == 1 or number in again else None
            if target is None:
                continue
            answer = await self._ask(webhook, write, target, mutating=True)
            if answer is not None and answer.patch and _patched(webhook["name"], write, target, answer.patch):
                again |= before
                before = set()
            if webhook.get("reinvocationPolicy") == "IfNeeded":
                before.add(number)
        return write.value or {}

    async def validate(self, write: Write) -> None:
        """Asks the validating webhooks, all at once.

        Raises:
            StatusError: one denies the write, or could not be asked; of several, the first in order.
        """
        asked = [
            self._ask(webhook, write, target, mutating=False)
            for webhook in self._hooks(self._validating, write)
            if (target := self._matched(webhook, write)) is not None
        ]
        for found in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(found, BaseException):
                raise found

    @staticmethod
    def _hooks(table: Table, write: Write) -> list[Json]:
        """The webhooks in their order. None are asked about webhooks and policies, so that wrong ones can be mended."""
        if not table.entries or write.user is None or write.resource.group == _GROUP:
            return []
        ordered = sorted(table.heads(), key=lambda each: each.name)
        return [webhook for each in ordered for webhook in each.value.get("webhooks") or ()]

    async def _ask(self, webhook: Json, write: Write, target: Resource, *, mutating: bool) -> Answer | None:
        """The answer of a webhook that allows the write; None if it could not be asked, which it lets pass."""
        name = webhook["name"]
        review = review_of(write, target)
        try:
            body = msgspec.json.encode(review)
            found = await self._caller.post(webhook["clientConfig"], body, webhook.get("timeoutSeconds", 10))
            answer = read_answer(found, review["request"]["uid"], mutating=mutating)
        except CallError as error:
            why = f'failed calling webhook "{name}": {error}'
            if webhook.get("failurePolicy") != "Ignore":
                raise internal(why) from error
            log.warning("%s", why)
            return None
        write.warnings += answer.warnings
        if write.noted is not None:
            write.noted += answer.warnings
        if not answer.allowed:
            raise denied(name, answer.status)
        return answer

    # --- what matches ---

    def _matched(self, webhook: Json, write: Write) -> Resource | None:
        """The version of the resource that a webhook wants to see; None: the write is not for it.

        Raises:
            StatusError: 404, the write is for it if its namespace is, which is not there.
        """
        resource, rules = write.resource, webhook.get("rules") or ()
        target = resource if any(_rule_matches(rule, write, resource) for rule in rules) else None
        if target is None and webhook.get("matchPolicy") != "Exact":
            versions = [each for each in self._catalog if each.storage == resource.storage]
            target = next((each for rule in rules for each in versions if _rule_matches(rule, write, each)), None)
        selector = webhook.get("objectSelector") or {}
        if target is None or (selector and not any(_selects(selector, each) for each in (write.value, write.old))):
            return None
        return target if self._in_namespace(webhook.get("namespaceSelector") or {}, write) else None

    def _in_namespace(self, selector: Json, write: Write) -> bool:
        if not selector or not write.namespace:
            return True
        if write.resource.storage == "namespaces" and not write.subresource and write.value is not None:
            return _selects(selector, write.value)
        entry = self._namespaces.head(write.namespace)
        if entry is None:
            raise not_found("", "namespaces", write.namespace)
        return selector_matches(selector, entry.labels)


def _selects(selector: Json, value: Json | None) -> bool:
    return value is not None and selector_matches(selector, (value.get("metadata") or {}).get("labels") or {})


def _rule_matches(rule: Json, write: Write, resource: Resource) -> bool:
    for name, value in (
        ("operations", write.operation), ("apiGroups", resource.group), ("apiVersions", resource.version),
    ):  # fmt: skip
        if "*" not in (rule.get(name) or ()) and value not in (rule.get(name) or ()):
            return False
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return rule.get("scope", "*") in ("*", scope) and any(
        plural in ("*", resource.plural) and subresource in ("*", write.subresource)
        for plural, _, subresource in (each.partition("/") for each in rule.get("resources") or ())
    )


def _patched(name: str, write: Write, target: Resource, patch: bytes) -> bool:
    """Applies a webhook's patch to the object of a write; whether that changes it.

    Raises:
        StatusError: 500, the patch does not fit, or there is no object to change.
    """
    shown = write.shown(write.value, target)
    try:
        if not (operations := msgspec.json.decode(patch)):
            return False
        if shown is None or write.own_kind is not None:
            what = "attempted to modify the object, which is not supported for this operation"
            raise bad_request(f'admission webhook "{name}" {what}')
        value, _ = typed(target, patched_object(target, shown, operations, JSON_PATCH))
        target.strategy.default(value)
    except (StatusError, msgspec.DecodeError) as error:
        raise internal(str(error)) from error
    changed = value != write.value
    write.value = value
    return changed
