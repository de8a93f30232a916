"""Authorization by RBAC: Roles and ClusterRoles, their bindings, and aggregation.

Source: kubernetes/kubernetes plugin/pkg/auth/authorizer/rbac. Members of `system:masters` may do everything. Nothing
checks for escalation: who may write roles and bindings may grant anything. The rules of a user are looked up once and
kept until anything in RBAC changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kproxy.apiserver.auth.authentication import MASTERS, User
from kproxy.apiserver.errors import Json, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.storage.store import Store
from kproxy.informer import selector_matches

GROUP: Final = "rbac.authorization.k8s.io"
_TABLES: Final = tuple(f"{name}.{GROUP}" for name in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"))


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a request wants to do, as authorizers see it. `path` is set for a path that names no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def refusal(self) -> str:
        """The refusal's text, without the user."""
        if self.path:
            return f'cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'cannot {self.verb} resource "{resource}" in API group "{self.group}" {scope}'


Grant = tuple[str, Json, str]
"""Namespace ("": everywhere), PolicyRule, and by what it was granted."""


class Authorizer:
    """Decides from the tables of a store."""

    def __init__(self, store: Store) -> None:
        self.cluster_roles, self._roles, self._cluster_bindings, self._bindings = (
            store.table(name) for name in _TABLES
        )
        self._grants: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        for table in (self.cluster_roles, self._roles, self._cluster_bindings, self._bindings):
            table.listeners.append(lambda _event: self._grants.clear())

    def allows(self, user: User, attributes: Attributes) -> tuple[bool, str]:
        """Whether a user may do it, and why."""
        if MASTERS in user.groups:
            return True, ""
        for namespace, rule, reason in self.grants(user):
            if (
                namespace in ("", attributes.namespace)
                and not (namespace and attributes.path)
                and covers(rule, attributes)
            ):
                return True, reason
        return False, ""

    def require(self, user: User, attributes: Attributes) -> None:
        """Raises StatusError 403 unless the user may."""
        allowed, reason = self.allows(user, attributes)
        if not allowed:
            why = f'User "{user.name}" {attributes.refusal}' + (f": {reason}" if reason else "")
            if attributes.path:
                raise forbidden("", "", "", why)
            raise forbidden(attributes.group, attributes.resource, attributes.name, why)

    def require_create(self, resource: Resource, namespace: str, name: str, user: User | None) -> None:
        """Raises StatusError 403 unless the user may create an object; None is the server itself.

        Source: k8s.io/apiserver pkg/endpoints/handlers/create.go (withAuthorization), for updates and applies.
        """
        if user is not None:
            self.require(user, Attributes("create", resource.group, resource.plural, "", namespace, name))

    def grants(self, user: User) -> list[Grant]:
        """Every rule a user has, cluster-wide ones first."""
        key = (user.name, user.groups)
        found = self._grants.get(key)
        if found is None:
            found = list(self._collect(user))
            if len(self._grants) > _MAX_USERS:
                self._grants.clear()
            if not _is_long(user):
                self._grants[key] = found
        return found

    def _collect(self, user: User) -> Iterator[Grant]:
        for table, kind in ((self._cluster_bindings, "ClusterRoleBinding"), (self._bindings, "RoleBinding")):
            for entry in table.entries.values():
                binding = entry.value
                subject = next((s for s in binding.get("subjects") or () if _applies(s, user, entry.namespace)), None)
                if subject is None:
                    continue
                role = binding["roleRef"]
                shown = f"{subject['name']}/{subject['namespace']}" if subject.get("namespace") else subject["name"]
                name = f"{entry.name}/{entry.namespace}" if entry.namespace else entry.name
                reason = (
                    f'RBAC: allowed by {kind} "{name}" of {role["kind"]} "{role["name"]}" '
                    f'to {subject["kind"]} "{shown}"'
                )
                for rule in self.rules_of(role, entry.namespace):
                    yield entry.namespace, rule, reason

    def rules_of(self, role: Json, namespace: str) -> list[Json]:
        """The rules of the role that a roleRef names."""
        name = role.get("name", "")
        of_cluster = role.get("kind") == "ClusterRole"
        entry = self.cluster_roles.head(name) if of_cluster else self._roles.head(f"{namespace}/{name}")
        return (entry.value.get("rules") or []) if entry is not None else []

    # --- aggregation ---

    def aggregated(self, role: Json) -> list[Json] | None:
        """The rules an aggregated ClusterRole should have; None if it is not aggregated."""
        rule = role.get("aggregationRule")
        if not rule:
            return None
        found: dict[bytes, Json] = {}
        for key in sorted(self.cluster_roles.entries):
            entry = self.cluster_roles.entries[key]
            if entry.name == role["metadata"]["name"]:
                continue
            if any(selector_matches(s, entry.labels) for s in rule.get("clusterRoleSelectors") or ()):
                for each in entry.value.get("rules") or ():
                    found.setdefault(msgspec.json.encode(each), each)
        return list(found.values())


_MAX_USERS: Final = 1000
_MAX_KEPT: Final = 4096
"""Characters of a user up to which what he may do is kept: reviews ask for users of megabytes."""


def _is_long(user: User) -> bool:
    """Whether a user's names are too long for what he may do to be kept."""
    return sum(map(len, (user.name, *user.groups))) > _MAX_KEPT


def _applies(subject: Json, user: User, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return user.name == subject.get("name")
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            home = subject.get("namespace") or namespace
            return user.name == f"system:serviceaccount:{home}:{subject.get('name')}"
    return False


def covers(rule: Json, attributes: Attributes) -> bool:
    """Whether a PolicyRule allows one thing."""
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and attributes.verb not in verbs:
        return False
    if attributes.path:
        return any(_path_matches(pattern, attributes.path) for pattern in rule.get("nonResourceURLs") or ())
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and attributes.group not in groups:
        return False
    if not _resource_matches(rule.get("resources") or (), attributes.resource, attributes.subresource):
        return False
    names = rule.get("resourceNames") or ()
    return not names or attributes.name in names


def _resource_matches(resources: Iterable[str], resource: str, subresource: str) -> bool:
    wanted = f"{resource}/{subresource}" if subresource else resource
    return any(each == "*" or each == wanted or (subresource and each == f"*/{subresource}") for each in resources)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))


def rules_review(grants: Iterable[Grant], namespace: str) -> Json:
    """status of a SelfSubjectRulesReview."""
    resources: list[Any] = []
    paths: list[Any] = []
    for scope, rule, _ in grants:
        if scope not in ("", namespace):
            continue
        if rule.get("nonResourceURLs"):
            paths.append({"verbs": rule.get("verbs"), "nonResourceURLs": rule["nonResourceURLs"]})
        else:
            names = ("verbs", "apiGroups", "resources", "resourceNames")
            resources.append({name: rule[name] for name in names if rule.get(name)})
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
