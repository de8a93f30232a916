"""Type checks of ValidatingAdmissionPolicies: what the types of the objects that a policy matches say of its
expressions, in `status.typeChecking` (kubernetes/kubernetes pkg/controller/validatingadmissionpolicystatus).

A policy is refused only for what is wrong with any object; what is wrong with a Deployment, say, is told here.
"""

from __future__ import annotations

from collections.abc import Iterator

from kproxy.apiserver.cel import library
from kproxy.apiserver.cel.admission import expressions, type_warnings
from kproxy.apiserver.controllers.base import Worker
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.registry.policies import GROUP, POLICIES
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import SERVER_OPTIONS
from kproxy.apiserver.storage.store import Event

_MOST_TYPES = 10


class PolicyStatusController:
    """Follows the policies; its worker's keys are their names."""

    def __init__(self, registry: Registry, catalog: Catalog) -> None:
        self._registry = registry
        self._catalog = catalog
        self._policies = registry.store.tables[POLICIES]
        self._resource = catalog.builtin(GROUP, "validatingadmissionpolicies")
        self._worker: Worker[str] = Worker("ValidatingAdmissionPolicies", self._sync)

    def start(self) -> None:
        """Follows the policies, and checks those that are there."""
        self._policies.listeners.append(self._changed)
        for entry in self._policies.entries.values():
            self._worker.add(entry.name)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _changed(self, event: Event) -> None:
        if not event.deleted:
            self._worker.add(event.entry.name)

    async def _sync(self, name: str) -> None:
        entry = self._policies.head(name)
        policy = entry.value if entry is not None else None
        if policy is None or not library.available():
            return
        generation, status = policy["metadata"].get("generation", 1), policy.get("status") or {}
        if status.get("observedGeneration") == generation:
            return
        checked: Json = {"expressionWarnings": found} if (found := list(self._warnings(policy["spec"]))) else {}
        policy["status"] = {**status, "observedGeneration": generation, "typeChecking": checked}
        body = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, **policy}
        result = self._registry.update(self._resource, "", name, body, SERVER_OPTIONS, subresource="status")
        if result.done is not None:
            await result.done

    def _warnings(self, spec: Json) -> Iterator[Json]:
        """An ExpressionWarning for each expression that does not fit some of the types."""
        params = self._params(spec.get("paramKind"))
        found: dict[str, list[str]] = {}
        for resource in self._matched(spec):
            shown = f"{resource.api_version}, Kind={resource.kind}"
            node = params.node if params is not None else None
            for path, why in type_warnings(spec, resource.node, node).items():
                found.setdefault(path, []).append(f"{shown}: {why}\n")
        for each in expressions(spec):
            if each.path in found:
                yield {"fieldRef": each.path, "warning": "\n".join(found[each.path])}

    def _matched(self, spec: Json) -> list[Resource]:
        """The resources that the rules name, without wildcards, in order, ten at most."""
        found: dict[tuple[str, str, str], Resource] = {}
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
            groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
            if any("*" in each for each in (*groups, *versions)):
                continue
            for group in sorted(groups):
                for version in sorted(versions):
                    for plural in sorted(each for each in rule.get("resources") or () if not set("*/") & set(each)):
                        resource = self._catalog.find(group, version, plural)
                        if resource is not None:
                            found.setdefault((group, version, resource.kind), resource)
        return [found[key] for key in sorted(found)][:_MOST_TYPES]

    def _params(self, kind: Json | None) -> Resource | None:
        if kind is None:
            return None
        wanted = (kind.get("apiVersion"), kind.get("kind"))
        return next((each for each in self._catalog if (each.api_version, each.kind) == wanted), None)
