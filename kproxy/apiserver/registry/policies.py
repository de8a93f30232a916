"""ValidatingAdmissionPolicies: which of them a write matches, with which parameters, and what they say of it.

It is the admission plugin ValidatingAdmissionPolicy, which is on by default (k8s.io/apiserver
pkg/admission/plugin/policy/validating and .../generic, pkg/admission/plugin/webhook/predicates). A policy counts where
a binding names it. What the server itself writes is not asked about.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple, Protocol

from kproxy.apiserver.cel import functions, library
from kproxy.apiserver.cel.decisions import Denial, denials
from kproxy.apiserver.cel.engine import authorizer
from kproxy.apiserver.errors import ApiError, Json, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.catalog import Catalog
from kproxy.apiserver.storage.store import Entry, Store, Table
from kproxy.informer.selectors import selector_matches

PLUGIN: Final = "ValidatingAdmissionPolicy"
"""Its name for `--disable-admission-plugins`."""
GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
_EXEMPT: Final = ("admissionpolicies", "admissionpolicybindings")
"""Policies say nothing of policies, so that a wrong one can be mended."""
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


class Decides(Protocol):
    """The authorizer, as expressions ask it."""

    def decide(self, user: Any, asked: dict[str, str]) -> tuple[bool, str]:
        """Whether a user may do what is asked (functions.Decide), and why."""


class Request(NamedTuple):
    """A write that is to be admitted: `value` is None for a deletion, `old` for a new object."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    value: Json | None
    old: Json | None
    user: Any
    subresource: str = ""
    dry_run: bool = False


class _ConfigurationError(Exception):
    """A policy or binding that cannot be asked: its failurePolicy decides."""


class Policies:
    """The policies and bindings of a store. `enabled`: they are asked at all."""

    def __init__(self, store: Store, catalog: Catalog, decides: Decides, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self._policies = store.tables[POLICIES]
        self._bindings = store.tables[BINDINGS]
        self._namespaces = store.tables["namespaces"]
        self._store = store
        self._catalog = catalog
        self._decides = decides
        self._decoded: dict[str, tuple[int, Json]] = {}

    def check(self, request: Request) -> list[str]:
        """The warnings of bindings that only warn.

        Raises:
            ApiError: a policy denies the request; with the reason that its validation names, or 422.
        """
        bindings = self._bindings.entries
        if (
            not bindings
            or not self._enabled
            or request.user is None
            or request.resource.plural.endswith(_EXEMPT)
            or not library.available()
        ):
            return []
        warnings: list[str] = []
        denied: list[tuple[str, str]] = []
        for policy in self._policies.heads():
            own = [each for each in map(self._value, self._bindings.heads()) if _policy_of(each) == policy.name]
            if own:
                self._ask(self._value(policy), own, request, warnings, denied)
        if denied:
            raise _refusal(request, *denied[0])
        return warnings

    def _value(self, entry: Entry) -> Json:
        """The object, decoded once for each version."""
        key = f"{entry.uid}{entry.name}"
        known = self._decoded.get(key)
        if known is None or known[0] != entry.revision:
            if len(self._decoded) > 1000:
                self._decoded.clear()
            known = self._decoded[key] = (entry.revision, entry.value)
        return known[1]

    def _ask(
        self, policy: Json, bindings: list[Json], request: Request, warnings: list[str], denied: list[tuple[str, str]]
    ) -> None:
        """Adds to `warnings`, and to what is `denied`: a message and a reason."""
        spec, name = policy["spec"], policy["metadata"]["name"]
        version = self._matched(spec.get("matchConstraints") or {}, request)
        if version is None:
            return
        for binding in bindings:
            bound = binding["spec"]
            among = bound.get("matchResources")
            if among is not None and self._matched(among, request) is None:
                continue
            bound_name = binding["metadata"]["name"]
            try:
                found = [
                    denial
                    for params in self._params(spec.get("paramKind"), bound.get("paramRef"), request)
                    for denial in self._denials(spec, version, params, request)
                ]
            except _ConfigurationError as error:
                if spec.get("failurePolicy") != "Ignore":
                    why = f"failed to configure binding: {error}"
                    said = f"ValidatingAdmissionPolicy '{name}' with binding '{bound_name}' denied request: {why}"
                    denied.append((said, Denial(why).reason))
                continue
            for denial in found:
                actions = bound.get("validationActions") or ()
                if "Deny" in actions:
                    said = f"ValidatingAdmissionPolicy '{name}' with binding '{bound_name}' denied request: "
                    denied.append((said + denial.message, denial.reason))
                if "Warn" in actions:
                    said = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound_name}': "
                    warnings.append(said + denial.message)

    def _denials(self, spec: Json, version: str, params: Json | None, request: Request) -> list[Denial]:
        values: Json = {
            "object": _object(request, version, request.value),
            "oldObject": _object(request, version, request.old),
            "request": _attributes(request, version),
            "namespaceObject": self._namespace(request),
            "authorizer": authorizer(),
        }
        if spec.get("paramKind"):
            values["params"] = params
        token = functions.DECIDE.set(lambda asked: self._decides.decide(request.user, asked))
        try:
            return denials(spec, values)
        finally:
            functions.DECIDE.reset(token)

    def _namespace(self, request: Request) -> Json | None:
        if not request.resource.namespaced:
            return None
        entry = self._namespaces.head(request.namespace)
        if entry is None:
            return None
        value = {"apiVersion": "v1", "kind": "Namespace", **entry.value}
        value["metadata"].pop("managedFields", None)
        return value

    # --- what matches ---

    def _matched(self, match: Json, request: Request) -> str | None:
        """The version in which a policy wants the objects of a request; None: it does not match."""
        selector = match.get("namespaceSelector") or {}
        if selector and not self._in_namespace(selector, request):
            return None
        selector = match.get("objectSelector") or {}
        if selector:
            objects = (each.get("metadata") or {} for each in (request.value, request.old) if each)
            labelled = [each.get("labels") or {} for each in objects]
            if not any(selector_matches(selector, labels) for labels in labelled):
                return None
        resource = request.resource
        versions = [resource.version]
        if match.get("matchPolicy") != "Exact":
            versions += [each.rpartition("/")[2] for each in resource.api_versions]
        for version in dict.fromkeys(versions):
            if any(_rule_matches(rule, request, version) for rule in match.get("excludeResourceRules") or ()):
                return None
        rules = match.get("resourceRules")
        if not rules:
            return resource.version
        return next((v for v in dict.fromkeys(versions) for rule in rules if _rule_matches(rule, request, v)), None)

    def _in_namespace(self, selector: Json, request: Request) -> bool:
        if request.resource.storage == "namespaces":
            value = request.value or request.old or {}
            return selector_matches(selector, value["metadata"].get("labels") or {})
        if not request.resource.namespaced:
            return True
        entry = self._namespaces.head(request.namespace)
        return entry is not None and selector_matches(selector, entry.labels)

    # --- parameters ---

    def _params(self, kind: Json | None, ref: Json | None, request: Request) -> Iterable[Json | None]:
        """The objects that a policy is asked with, one after the other; a policy without parameters is asked once.

        Raises:
            _ConfigurationError: there are none, or they cannot be named.
        """
        if kind is None or ref is None:
            return [None]
        group, _, version = kind.get("apiVersion", "").rpartition("/")
        found = next((r for r in self._catalog if (r.group, r.version, r.kind) == (group, version, kind["kind"])), None)
        if found is None or not found.stored:
            shown = f"{kind.get('apiVersion')}, Kind={kind.get('kind')}"
            raise _ConfigurationError(f"failed to find resource referenced by paramKind: '{shown}'")
        namespace = ref.get("namespace") or ""
        if found.namespaced and not namespace:
            namespace = request.namespace if request.resource.namespaced else ""
            if not namespace:
                why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                raise _ConfigurationError(why)
        elif not found.namespaced and namespace:
            why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            raise _ConfigurationError(why)
        objects = list(_named(self._store.table(found.storage), ref, namespace))
        if not objects and ref.get("parameterNotFoundAction") != "Allow":
            why = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise _ConfigurationError(why)
        return [_shown(found, found.version, entry.value) for entry in objects]


def _policy_of(binding: Json) -> str:
    name: str = binding["spec"].get("policyName", "")
    return name


def _named(table: Table, ref: Json, namespace: str) -> Iterator[Entry]:
    """The objects that a paramRef names or selects."""
    if ref.get("name"):
        entry = table.head(f"{namespace}/{ref['name']}" if namespace else ref["name"])
        if entry is not None:
            yield entry
    elif ref.get("selector") is not None:
        entries = table.heads_in(namespace) if namespace else table.heads()
        yield from (entry for entry in entries if selector_matches(ref["selector"], entry.labels))


def _rule_matches(rule: Json, request: Request, version: str) -> bool:
    resource = request.resource
    if rule.get("resourceNames") and request.name not in rule["resourceNames"]:
        return False
    wanted = (
        ("operations", request.operation),
        ("apiGroups", resource.group),
        ("apiVersions", version),
    )
    if not all("*" in (rule.get(name) or ()) or value in (rule.get(name) or ()) for name, value in wanted):
        return False
    scope = "Namespaced" if resource.namespaced else "Cluster"
    if rule.get("scope", "*") not in ("*", scope):
        return False
    return any(
        plural in ("*", resource.plural) and subresource in ("*", request.subresource)
        for plural, _, subresource in (each.partition("/") for each in rule.get("resources") or ())
    )


def _object(request: Request, version: str, value: Json | None) -> Json | None:
    """The object of a request, in a version; of a subresource with a kind of its own (Scale, say), as it was sent."""
    form = request.resource.subresource(request.subresource)
    if value is None or form is None or form.kind == request.resource.kind:
        return _shown(request.resource, version, value)
    return {**value, "apiVersion": "/".join(filter(None, (form.group, form.version or "v1"))), "kind": form.kind}


def _shown(resource: Resource, version: str, value: Json | None) -> Json | None:
    """An object as a version shows it."""
    if value is None:
        return None
    shown = resource.strategy.to_version(deepcopy(value)) if resource.strategy.converts else value
    group = f"{resource.group}/{version}" if resource.group else version
    return {**shown, "apiVersion": group, "kind": resource.kind}


def _attributes(request: Request, version: str) -> Json:
    """admission.k8s.io/v1 AdmissionRequest, without the objects."""
    resource = request.resource
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    first = kind | {"version": resource.version}
    form = resource.subresource(request.subresource)
    if form is not None and form.kind != resource.kind:
        kind = first = {"group": form.group, "version": form.version or "v1", "kind": form.kind}
    about = {"group": resource.group, "version": version, "resource": resource.plural}
    found: Json = {
        "uid": str(uuid.uuid4()), "kind": kind, "resource": about, "requestKind": first,
        "requestResource": about | {"version": resource.version}, "name": request.name,
        "namespace": request.namespace if resource.namespaced else "", "operation": request.operation,
        "userInfo": request.user.info, "dryRun": request.dry_run, "options": None,
    }  # fmt: skip
    if request.subresource:
        found |= {"subResource": request.subresource, "requestSubResource": request.subresource}
    return found


def _refusal(request: Request, message: str, reason: str) -> ApiError:
    error = forbidden(request.resource.group, request.resource.plural, request.name, message)
    error.code, error.reason = _CODES.get(reason, 500), reason
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error
