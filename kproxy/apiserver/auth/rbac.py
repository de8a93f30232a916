"""Authorization by RBAC: Roles and ClusterRoles, their bindings, aggregation, and the escalation check.

Source: kubernetes/kubernetes plugin/pkg/auth/authorizer/rbac and pkg/registry/rbac. Members of `system:masters` may do
everything. The rules of a user are looked up once and kept until anything in RBAC changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Any, Final

import msgspec

from kproxy.apiserver.auth.authentication import MASTERS, User
from kproxy.apiserver.errors import Json, forbidden, not_found
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.storage.store import Entry, Store, Table
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
        self._cluster_roles, self._roles, self._cluster_bindings, self._bindings = (
            store.table(name) for name in _TABLES
        )
        self._grants: dict[tuple[str, tuple[str, ...]], list[Grant]] = {}
        self._decisions: dict[tuple[User, Attributes], tuple[bool, str]] = {}
        for table in (self._cluster_roles, self._roles, self._cluster_bindings, self._bindings):
            table.listeners.append(lambda _event: self._forget())

    def _forget(self) -> None:
        self._grants.clear()
        self._decisions.clear()

    def allows(self, user: User, attributes: Attributes) -> tuple[bool, str]:
        """Whether a user may do it, and why."""
        if MASTERS in user.groups:
            return True, ""
        key = (user, attributes)
        found = self._decisions.get(key)
        if found is None:
            if len(self._decisions) > 10_000:
                self._decisions.clear()
            found = self._decide(user, attributes)
            if not _is_long(user, *astuple(attributes)):
                self._decisions[key] = found
        return found

    def _decide(self, user: User, attributes: Attributes) -> tuple[bool, str]:
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
        entry = self._role(role, namespace)
        if entry is None:
            return []
        rules: list[Json] = entry.value.get("rules") or []
        return rules

    def _role(self, role: Json, namespace: str) -> Entry | None:
        if role.get("kind") == "ClusterRole":
            return self._cluster_roles.head(role.get("name", ""))
        return self._roles.head(f"{namespace}/{role.get('name', '')}")

    # --- escalation ---

    def check_write(self, resource: Resource, value: Json, old: Json | None, user: User | None) -> None:
        """Refuses to let a user grant what the user does not hold.

        Every update is checked, whatever it changes: a label or an aggregationRule can grant as much as a rule. Only
        those that change no more than what the garbage collector does are not.
        Source: pkg/registry/rbac, policybased/storage.go of each kind and escalation_check.go.

        Raises:
            StatusError: 403; 404 for a binding to a role that is not there.
        """
        if user is None or resource.group != GROUP or MASTERS in user.groups:
            return
        if old is not None and _without_gc_fields(value) == _without_gc_fields(old):
            return
        namespace, name = value["metadata"].get("namespace", ""), value["metadata"].get("name", "")
        if resource.kind in ("Role", "ClusterRole"):
            # A create is asked for without a name.
            asked = Attributes("escalate", GROUP, resource.plural, "", namespace, "" if old is None else name)
            if self.allows(user, asked)[0]:
                return
            rules = value.get("rules") or []
        else:
            role = value["roleRef"]
            target = f"{role.get('kind', '').lower()}s"
            if self.allows(user, Attributes("bind", GROUP, target, "", namespace, role.get("name", "")))[0]:
                return
            if self._role(role, namespace) is None:  # who may bind it is known once it is there
                raise not_found(GROUP, target, role.get("name", ""))
            rules = self.rules_of(role, namespace)
        missing = self._not_held(user, rules, namespace)
        if missing:
            groups = "[" + " ".join(f'"{each}"' for each in user.groups) + "]"
            listed = "\n".join(dict.fromkeys(_show(part) for part in missing))
            what = "is attempting to grant RBAC permissions not currently held"
            why = f'user "{user.name}" (groups={groups}) {what}:\n{listed}'
            raise forbidden(GROUP, resource.plural, name, why)
        aggregates = value.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and not self._everything(user):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise forbidden(GROUP, resource.plural, name, why)

    def _everything(self, user: User) -> bool:
        """Whether a user holds all rights, on resources and on paths."""
        every: Json = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return self._holds(user, every, "") and self._holds(user, {"verbs": ["*"], "nonResourceURLs": ["*"]}, "")

    def _not_held(self, user: User, rules: Iterable[Json], namespace: str) -> list[Json]:
        """What of some rules a user does not hold, in parts; no more than a message can hold.

        A rule of a few kilobytes has thousands of millions of parts: they are made one by one, and each is compared
        with each rule that the user has. Rules that are too many to look through count as not held.
        """
        missing: list[Json] = []
        held = [rule for scope, rule, _ in self.grants(user) if scope in ("", namespace)]
        all_resources, all_paths = (any(_includes_all(each, kind) for each in held) for kind in ({}, _PATHS))
        left = _MAX_COMPARED
        for rule in rules:
            if all_paths if rule.get("nonResourceURLs") else all_resources:
                continue
            for part in _break_down(rule):
                found = next((number for number, each in enumerate(held[:left], 1) if _includes(each, part)), 0)
                left -= found or len(held) + 1
                if not found:
                    missing.append(part)
                if left <= 0 or len(missing) >= _MAX_MISSING:
                    return missing or [part]
        return missing

    def _holds(self, user: User, part: Json, namespace: str) -> bool:
        return any(scope in ("", namespace) and _includes(rule, part) for scope, rule, _ in self.grants(user))

    # --- aggregation ---

    def aggregated(self, role: Json) -> list[Json] | None:
        """The rules an aggregated ClusterRole should have; None if it is not aggregated."""
        rule = role.get("aggregationRule")
        if not rule:
            return None
        found: dict[bytes, Json] = {}
        for key in sorted(self._cluster_roles.entries):
            entry = self._cluster_roles.entries[key]
            if entry.name == role["metadata"]["name"]:
                continue
            if any(selector_matches(s, entry.labels) for s in rule.get("clusterRoleSelectors") or ()):
                for each in entry.value.get("rules") or ():
                    found.setdefault(msgspec.json.encode(each), each)
        return list(found.values())

    @property
    def cluster_roles(self) -> Table:
        """The table of ClusterRoles, for the aggregation controller."""
        return self._cluster_roles


_MAX_USERS: Final = 1000
_MAX_KEPT: Final = 4096
"""Characters of a user and what is asked of him up to which the answer is kept: reviews ask for users of megabytes."""
_MAX_COMPARED: Final = 1_000_000
_PATHS: Final[Json] = {"nonResourceURLs": ["*"]}
_MAX_MISSING: Final = 1000
_GC_FIELDS: Final = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "selfLink")


def _is_long(user: User, *more: str) -> bool:
    """Whether a user and more text are too long to be kept."""
    extra = (each for values in user.extra.values() for each in values)
    return sum(map(len, (user.name, user.uid, *user.groups, *user.extra, *extra, *more))) > _MAX_KEPT


def _without_gc_fields(value: Json) -> Json:
    """An object without the metadata that the garbage collector, and the server with it, changes."""
    metadata = {key: each for key, each in value["metadata"].items() if key not in _GC_FIELDS}
    return value | {"metadata": metadata}


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


def _break_down(rule: Json) -> Iterator[Json]:
    """A rule as rules of one verb, group, resource and name each."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [path]}
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                part: Json = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                names = rule.get("resourceNames") or ()
                for name in names:
                    yield part | {"resourceNames": [name]}
                if not names:
                    yield part


def _includes_all(held: Json, rule: Json) -> bool:
    """Whether one rule allows all of another, without looking at its parts one by one; False if that is not plain."""
    names = ("nonResourceURLs",) if rule.get("nonResourceURLs") else ("apiGroups", "resources")
    return not held.get("resourceNames") and all("*" in (held.get(name) or ()) for name in ("verbs", *names))


def _includes(rule: Json, part: Json) -> bool:
    """Whether a rule allows all that a broken-down rule does."""

    def has(name: str) -> bool:
        mine, theirs = rule.get(name) or (), (part.get(name) or ("",))[0]
        return "*" in mine or theirs in mine

    if not has("verbs"):
        return False
    if "nonResourceURLs" in part:
        return any(_path_matches(p, part["nonResourceURLs"][0]) for p in rule.get("nonResourceURLs") or ())
    if not has("apiGroups"):
        return False
    resource, _, sub = part["resources"][0].partition("/")
    mine = rule.get("resources") or ()
    if part["resources"][0] not in mine and not _resource_matches(mine, resource, sub):
        return False
    names = rule.get("resourceNames") or ()
    return not names or bool(part.get("resourceNames") and part["resourceNames"][0] in names)


def _show(part: Json) -> str:
    fields = (("apiGroups", "APIGroups"), ("resources", "Resources"), ("resourceNames", "ResourceNames"),
              ("nonResourceURLs", "NonResourceURLs"), ("verbs", "Verbs"))  # fmt: skip
    shown = [f'{label}:["{part[name][0]}"]' for name, label in fields if name in part]
    return "{" + ", ".join(shown) + "}"


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
