"""A request as the API understands it: which resource, which verb, which options.

Source of the paths: k8s.io/apiserver pkg/endpoints/request (RequestInfo).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from kproxy.api.fielderror import invalid as invalid_field
from kproxy.api.fielderror import not_supported, too_long
from kproxy.api.kubeproxyconfig.duration import parse_duration
from kproxy.apiserver.auth.rbac import Attributes
from kproxy.apiserver.errors import bad_request, invalid
from kproxy.apiserver.registry.writes import DeleteOptions, Options

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


@dataclass(slots=True)
class Target:
    """What a path names. `group` None: no resource path."""

    group: str | None = None
    version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


def parse_path(path: str) -> Target:
    """What a path names; a path that names no resource has group None."""
    parts = path.strip("/").split("/")
    if "" in parts or "." in parts or ".." in parts:
        return Target()
    if parts[0] == "api" and len(parts) > 2:
        target, parts = Target("", parts[1]), parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        target, parts = Target(parts[1], parts[2]), parts[3:]
    else:
        return Target()
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        target.namespace = parts[1]
        parts = parts[2:]
    elif parts[0] == "namespaces" and len(parts) > 1:
        target.namespace = parts[1]
    target.resource = parts[0]
    target.name = parts[1] if len(parts) > 1 else ""
    target.subresource = parts[2] if len(parts) > 2 else ""
    target.rest = "/".join(parts[3:])
    return target


@dataclass(slots=True)
class Request:
    """One request, its body read."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    body_read: bool = False
    target: Target = field(default_factory=Target)
    user: Any = None
    warnings: list[str] = field(default_factory=list)
    deprecation: str = ""
    """What is to be said of the resource itself."""

    def header(self, name: str) -> str:
        """A header, "" if it is not there."""
        return self.headers.get(name, "")

    def flag(self, name: str) -> bool | None:
        """A boolean query parameter, None if it is not there.

        Raises:
            StatusError: 400.
        """
        value = self.query.get(name)
        if value is None:
            return None
        if value in _TRUE or value == "":
            return value != ""
        if value in _FALSE:
            return False
        raise bad_request(f'strconv.ParseBool: parsing "{value}": invalid syntax')

    def number(self, name: str) -> int | None:
        """An integer query parameter, None if it is not there.

        Raises:
            StatusError: 400.
        """
        value = self.query.get(name)
        if not value:
            return None
        try:
            number = int(value)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None
        if not -(1 << 63) <= number < 1 << 63:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": value out of range')
        return number

    def check_timeout(self) -> None:
        """Refuses a `timeout` that is no duration. One that is shorter than what the server takes is not kept: what it
        does takes milliseconds (k8s.io/apiserver pkg/endpoints/filters/request_deadline.go).

        Raises:
            StatusError: 400.
        """
        if (text := self.query.get("timeout")) and not self.watching:
            try:
                parse_duration(text)
            except ValueError as error:
                raise bad_request(f"invalid timeout specified in the request URL - {error}") from error

    @property
    def watching(self) -> bool:
        """Whether the client asks for a watch."""
        return bool(self.flag("watch"))

    @property
    def verb(self) -> str:
        """The verb as authorization knows it."""
        if self.target.group is None:
            return "get" if self.method in ("GET", "HEAD") else self.method.lower()
        if self.method in ("GET", "HEAD"):
            if self.watching and not self.target.subresource:
                return "watch"
            return "get" if self.target.name else "list"
        if self.method == "DELETE":
            return "delete" if self.target.name else "deletecollection"
        return _VERBS.get(self.method, self.method.lower())

    @property
    def attributes(self) -> Attributes:
        """What RBAC decides on: verb, resource, namespace, name."""
        target, verb = self.target, self.verb
        if target.group is None:
            return Attributes(verb, path=self.path)
        name = target.name
        if not name and verb in ("list", "watch", "deletecollection"):
            # A list of one object by name may be allowed to users that may get only that object.
            selector = self.query.get("fieldSelector", "")
            if selector.startswith("metadata.name=") and "," not in selector:
                name = selector.removeprefix("metadata.name=").removeprefix("=")
        return Attributes(verb, target.group, target.resource, target.subresource, target.namespace, name)

    def dry_run(self, given: Any = None) -> bool:
        """Whether nothing is to be written.

        Raises:
            StatusError: 422 for another value than All.
        """
        value = self.query.get("dryRun")
        values = given if isinstance(given, list) else [value] if value else []
        for each in values:
            if each != "All":
                errors = [not_supported("dryRun", values, ("All",))]
                raise invalid("meta.k8s.io", f"{self._options_kind()}Options", "", errors)
        return bool(values)

    def _options_kind(self) -> str:
        return {"create": "Create", "patch": "Patch"}.get(self.verb, "Update")

    def options(self) -> Options:
        """The options of a create, update or patch.

        Raises:
            StatusError: 422.
        """
        manager = self.query.get("fieldManager", "")
        kind = f"{self._options_kind()}Options"
        if len(manager) > 128:
            raise invalid("meta.k8s.io", kind, "", [too_long("fieldManager", 128)])
        if not manager.isprintable():
            errors = [invalid_field("fieldManager", manager, "should only contain printable characters")]
            raise invalid("meta.k8s.io", kind, "", errors)
        validation = self.query.get("fieldValidation", "") or "Warn"
        if validation not in ("Ignore", "Warn", "Strict"):
            errors = [not_supported("fieldValidation", validation, ("Ignore", "Strict", "Warn"))]
            raise invalid("meta.k8s.io", kind, "", errors)
        agent = self.header("user-agent").partition("/")[0]
        return Options(
            self.dry_run(),
            manager or "".join(c for c in agent if c.isprintable())[:128] or "unknown",
            validation,
            bool(self.flag("force")),
            self.warnings,
        )

    def delete_options(self, body: Any) -> DeleteOptions:
        """The options of a delete, from the body and else from the query.

        Raises:
            StatusError: 400 or 422.
        """
        given = body if isinstance(body, dict) else {}
        if given.get("kind") not in (None, "", "DeleteOptions"):
            raise bad_request(f"decoded object cannot be converted to DeleteOptions: {given.get('kind')}")
        grace = given.get("gracePeriodSeconds", self.number("gracePeriodSeconds"))
        policy = given.get("propagationPolicy") or self.query.get("propagationPolicy", "")
        if policy not in ("", "Background", "Foreground", "Orphan"):
            errors = [not_supported("propagationPolicy", policy, ("Background", "Foreground", "Orphan"))]
            raise invalid("meta.k8s.io", "DeleteOptions", "", errors)
        orphans = given.get("orphanDependents", self.flag("orphanDependents"))
        if policy and orphans is not None:
            text = "orphanDependents and deletionPropagation cannot be both set"
            raise invalid("meta.k8s.io", "DeleteOptions", "", [invalid_field("propagationPolicy", policy, text)])
        if orphans:
            policy = "Orphan"
        conditions = given.get("preconditions") or {}
        if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
            raise bad_request(
                "json: cannot unmarshal into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            )
        if not isinstance(conditions, dict):
            raise bad_request("json: cannot unmarshal into Go struct field DeleteOptions.preconditions")
        return DeleteOptions(
            grace,
            policy,
            str(conditions.get("uid") or ""),
            str(conditions.get("resourceVersion") or ""),
            self.dry_run(given.get("dryRun")),
            self.warnings,
        )


def parse_query(text: bytes) -> dict[str, str]:
    """Query parameters; the first of a name counts.

    Raises: StatusError: 400 for an invalid query.
    """
    if not text:
        return {}
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=100, errors="strict")
    except (ValueError, UnicodeDecodeError) as error:
        raise bad_request("invalid query") from error
    found: dict[str, str] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found
