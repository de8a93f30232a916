"""The verbs, for any resource: create, update, patch, delete and what they share.

Each write is one function call on the event loop, from the newest state to the log, without a lock or an await in
between; the caller then awaits `Written.done`, after which the change is on disk and visible. Reading verbs are in
reads.py and watch.py.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kproxy.api.problems import FieldError, invalid
from kproxy.apiserver import managed
from kproxy.apiserver.allocator import Allocators
from kproxy.apiserver.decode import Decoder, TypeMismatchError, decode_error, duplicate_fields
from kproxy.apiserver.events import from_new_event, to_new_event
from kproxy.apiserver.managed import Manager
from kproxy.apiserver.patch import apply_json_patch, apply_merge_patch, apply_strategic_patch
from kproxy.apiserver.resources import Resource
from kproxy.apiserver.status import (
    ApiError,
    Json,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    not_found,
    stale,
    unsupported_media_type,
)
from kproxy.apiserver.status import invalid as invalid_object
from kproxy.apiserver.store import Entry, Store, Table
from kproxy.apiserver.strategy import Context, metadata_errors, metadata_update_errors
from kproxy.apiserver.structural import prune

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_RETURNS_DELETED: Final = frozenset({"pods", "services", "serviceaccounts"})
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Options:
    """What a writing request asks for beside its object."""

    dry_run: bool = False
    field_manager: str = "unknown"
    field_validation: str = "Warn"
    force: bool = False


@dataclass(slots=True)
class DeleteOptions:
    """metav1.DeleteOptions."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


@dataclass(slots=True)
class Written:
    """The outcome of a write: the object as the client gets it (without kind and apiVersion), when it is durable, and
    what to warn of. `status`: answer with a Status of success instead of the object."""

    value: Json
    done: asyncio.Future[None] | None = None
    code: int = 200
    warnings: list[str] = field(default_factory=list)
    entry: Entry | None = None
    status: Json | None = None


Hook = Callable[[Resource, Json, Json | None], None]


def timestamp(moment: datetime) -> str:
    """RFC 3339 with seconds, as metav1.Time prints it."""
    return moment.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


class Registry:
    """Writes to the resources of one store. `now` gives the time, `chance` names and values drawn at random."""

    def __init__(
        self, store: Store, allocators: Allocators, chance: random.Random, now: Callable[[], datetime]
    ) -> None:
        self.store = store
        self.allocators = allocators
        self._chance = chance
        self._now = now
        self._empty: dict[str, Json] = {}
        self.namespaces: Table | None = None
        self.check: Callable[[Resource, Json, Json | None, Any], None] = lambda _r, _v, _o, _u: None
        """Called before a write is accepted, with the user: the escalation check of RBAC."""

    def now(self) -> datetime:
        """The time, UTC."""
        return self._now()

    def table(self, resource: Resource) -> Table:
        """The table of a resource."""
        return self.store.table(resource.storage, resource.fields_of)

    @staticmethod
    def key(resource: Resource, namespace: str, name: str) -> str:
        """The key of an object in its table."""
        return f"{namespace}/{name}" if resource.namespaced else name

    def head(self, resource: Resource, namespace: str, name: str) -> Entry:
        """The newest version of an object.

        Raises:
            ApiError: 404.
        """
        entry = self.table(resource).head(self.key(resource, namespace, name))
        if entry is None:
            raise not_found(resource.group, resource.plural, name)
        return entry

    def _context(self, dry_run: bool) -> Context:
        return Context(self.allocators, timestamp(self._now()), dry_run)

    # --- decoding ---

    def decode(self, resource: Resource, body: Any, text: bytes, options: Options) -> tuple[Json, list[str]]:
        """A body as a typed value without kind and apiVersion, and what to warn of.

        Raises:
            ApiError: 400: another kind, a wrong type, or an unknown field when validation is strict.
        """
        self.check_kind(resource, body)
        value, unknown = self._typed(resource, body)
        found = [f'unknown field "{path}"' for path in unknown]
        if options.field_validation == "Ignore":
            return value, []
        if text:
            found = [f'duplicate field "{path}"' for path in duplicate_fields(text, body)] + found
        if found and options.field_validation == "Strict":
            raise decode_error(resource.kind, resource.version, f"strict decoding error: {', '.join(found)}")
        return value, found

    def check_kind(self, resource: Resource, body: Any) -> None:
        """Refuses an object of another kind or version; one without either is taken for the right one."""
        if not isinstance(body, dict):
            text = (
                f"couldn't get version/kind; json parse error: json: cannot unmarshal into Go value ({resource.kind})"
            )
            raise bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {text}")
        kind, version = body.get("kind"), body.get("apiVersion")
        if version not in (None, "", resource.api_version):
            if kind in (None, "", resource.kind):
                raise bad_request(
                    f"the API version in the data ({version}) does not match the expected API version "
                    f"({resource.api_version})"
                )
            raise bad_request(f'no kind "{kind}" is registered for version "{version}" in scheme')
        if kind not in (None, "", resource.kind):
            group = resource.group.partition(".")[0] or "core"
            raise bad_request(
                f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind}: converting '
                f"({resource.version}.{kind}) to ({group}.{resource.kind}): unknown conversion"
            )

    def _typed(self, resource: Resource, body: Json) -> tuple[Json, list[str]]:
        decoder = Decoder()
        try:
            if resource.custom:
                value = self._custom(resource, body, decoder)
            else:
                value = decoder.object(
                    {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}, resource.node
                )
        except TypeMismatchError as error:
            raise decode_error(resource.kind, resource.version, str(error)) from error
        if resource.storage == "events" and resource.group:
            value = from_new_event(value)
        ordered: Json = {"metadata": value.pop("metadata", None) or {}}
        ordered |= value
        return ordered, decoder.unknown

    def _custom(self, resource: Resource, body: Json, decoder: Decoder) -> Json:
        value: Json = {key: item for key, item in body.items() if key not in ("kind", "apiVersion")}
        metadata = value.pop("metadata", None) or {}
        pruned: Json = prune(value, resource.node, "", decoder.unknown)
        typed = decoder.object(metadata, resource.node.props["metadata"].node, "metadata")
        return {"metadata": typed, **pruned}

    def empty(self, resource: Resource) -> Json:
        """The object of a kind with nothing set: what a new object is compared with to see what it sets."""
        key = f"{resource.storage}/{resource.version}"
        if resource.custom:
            return {}
        if key not in self._empty:
            self._empty[key] = self._typed(resource, {})[0]
        return self._empty[key]

    # --- create ---

    def create(
        self,
        resource: Resource,
        namespace: str,
        body: Any,
        options: Options = Options(),  # frozen
        *,
        text: bytes = b"",
        user: Any = None,
        applied: Json | None = None,
    ) -> Written:
        """Creates an object. `applied` is what server-side apply has made, with its managedFields."""
        if applied is None:
            value, warnings = self.decode(resource, body, text, options)
        else:
            value, warnings = applied, []
        meta = value["metadata"]
        self._check_namespace(resource, namespace, meta)
        if meta.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(self._chance.choices(_SUFFIX, k=5))
            ordered = {"name": meta.pop("name"), **meta}
            value["metadata"] = meta = ordered
        now = timestamp(self._now())
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            meta.pop(name, None)
        meta.pop("generation", None)
        if applied is None:
            meta.pop("managedFields", None)
        resource.strategy.default(value)
        if applied is None:
            manager = Manager(options.field_manager, "Update", resource.api_version, "", now, set())
            resets = self._resets(resource, "")
            managed.update_managers(self.empty(resource), value, resource.node, manager, resets, [])
        owners = meta.pop("managedFields", None)
        meta["uid"] = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        if resource.strategy.has_generation:
            meta["generation"] = 1
        meta["creationTimestamp"] = now
        if owners:
            meta["managedFields"] = owners
        context = self._context(options.dry_run)
        resource.strategy.prepare_create(value, context)
        errors = metadata_errors(value, resource.strategy.check_name, resource.namespaced)
        errors += resource.strategy.validate(value)
        self._refuse(resource, meta.get("name", ""), errors)
        name = meta["name"]
        table, key = self.table(resource), self.key(resource, namespace, name)
        if resource.namespaced:
            self._require_namespace(resource, namespace, name)
        self.check(resource, value, None, user)
        if table.head(key) is not None:
            raise already_exists(resource.group, resource.plural, name)
        self._refuse(resource, name, resource.strategy.allocate(value, None, context))
        warnings += resource.strategy.warnings(value)
        if options.dry_run:
            return Written(value, None, 201, warnings)
        entry, done = self.store.put(table, key, value)
        return Written(value, done, 201, warnings, entry)

    def _check_namespace(self, resource: Resource, namespace: str, meta: Json) -> None:
        given = meta.get("namespace", "")
        if resource.namespaced:
            if given and given != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = namespace
        elif given:
            meta.pop("namespace")

    def _require_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        assert self.namespaces is not None
        entry = self.namespaces.head(namespace)
        if entry is None:
            raise not_found("", "namespaces", namespace)
        if b'"deletionTimestamp"' in entry.body and entry.value["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = forbidden(resource.group, resource.plural, name, why)
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            error.details = {**(error.details or {}), "causes": [cause | {"field": "metadata.namespace"}]}
            raise error

    @staticmethod
    def _refuse(resource: Resource, name: str, errors: list[FieldError]) -> None:
        if errors:
            raise invalid_object(resource.group, resource.kind, name, errors)

    @staticmethod
    def _resets(resource: Resource, subresource: str) -> tuple[tuple[str, ...], ...]:
        strategy = resource.strategy
        if subresource == "status":
            return strategy.status_resets
        if resource.custom:
            return (("f:status",),) if resource.has_status else ()
        return strategy.spec_resets

    # --- update ---

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Any,
        options: Options = Options(),  # frozen
        *,
        text: bytes = b"",
        subresource: str = "",
        user: Any = None,
    ) -> Written:
        """Replaces an object, or one subresource of it."""
        value, warnings = self.decode(resource, body, text, options)
        meta = value["metadata"]
        given = meta.get("name", "")
        if given and given != name:
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        self._check_namespace(resource, namespace, meta)
        table = self.table(resource)
        entry = table.head(self.key(resource, namespace, name))
        if entry is None:
            if resource.strategy.create_on_update and not subresource and not meta.get("resourceVersion"):
                return self.create(resource, namespace, body, options, text=text, user=user)
            raise not_found(resource.group, resource.plural, name)
        if not given:
            text_ = "name must be provided"
            raise bad_request(text_) if resource.custom else self._nameless(resource)
        version = meta.get("resourceVersion", "")
        if not version and resource.custom:
            errors = [FieldError("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]
            raise invalid_object(resource.group, resource.kind, name, errors)
        return self._replace(resource, entry, value, options, subresource, warnings, user)

    @staticmethod
    def _nameless(resource: Resource) -> ApiError:
        return bad_request("the name of the object must be set")

    def _replace(
        self,
        resource: Resource,
        entry: Entry,
        value: Json,
        options: Options,
        subresource: str,
        warnings: list[str],
        user: Any,
        *,
        applied: bool = False,
        manager_time: bool = True,
    ) -> Written:
        live = entry.value
        meta, old = value["metadata"], live["metadata"]
        name, group, plural = old["name"], resource.group, resource.plural
        version = meta.get("resourceVersion", "")
        if version and version != old["resourceVersion"]:
            raise stale(group, plural, name)
        if meta.get("uid") and meta["uid"] != old["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
            raise conflict(group, plural, name, why)
        if applied:
            owners = meta.pop("managedFields", None)
        resource.strategy.default(value)
        self._keep_system_fields(meta, old)
        if applied:
            meta.pop("managedFields", None)
            if owners:
                meta["managedFields"] = owners
        else:
            moment = timestamp(self._now()) if manager_time else ""
            manager = Manager(options.field_manager, "Update", resource.api_version, subresource, moment, set())
            given = meta.get("managedFields")
            # An empty list asks for the ownership to be forgotten.
            previous: list[Manager] | None = [] if given in ([], [{}]) else None
            managed.update_managers(live, value, resource.node, manager, self._resets(resource, subresource), previous)
        context = self._context(options.dry_run)
        self._prepare(resource, value, live, subresource, context)
        if resource.strategy.has_generation:
            before = old.get("generation", 1)
            changed = resource.strategy.generation_of(value) != resource.strategy.generation_of(live)
            meta["generation"] = before + 1 if changed else before
        errors = metadata_errors(value, resource.strategy.check_name, resource.namespaced)
        errors += metadata_update_errors(value, live)
        errors += self._update_errors(resource, value, live)
        self._refuse(resource, name, errors)
        self.check(resource, value, live, user)
        if not subresource:
            self._refuse(resource, name, resource.strategy.allocate(value, live, context))
        warnings += resource.strategy.warnings(value)
        if same_but_times(value, live):
            return Written(live, self._pending(resource, entry), 200, warnings, entry)
        if options.dry_run:
            meta["resourceVersion"] = old["resourceVersion"]
            return Written(value, None, 200, warnings)
        table = self.table(resource)
        if old.get("deletionTimestamp") and self._finished(resource, value):
            shown = {**value, "metadata": dict(meta)}
            shown["metadata"]["resourceVersion"] = old["resourceVersion"]
            resource.strategy.release(live, context)
            _, done = self.store.delete(table, entry.key, value)
            return Written(shown, done, 200, warnings)
        written, done = self.store.put(table, entry.key, value)
        return Written(value, done, 200, warnings, written)

    def _pending(self, resource: Resource, entry: Entry) -> asyncio.Future[None] | None:
        """What to wait for before saying that nothing has changed: the version may not be on disk yet."""
        return self.store.waiting(entry.revision)

    @staticmethod
    def _keep_system_fields(meta: Json, old: Json) -> None:
        for name in (
            "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion",
            "generation", "selfLink",
        ):  # fmt: skip
            if name in old:
                meta[name] = old[name]
            else:
                meta.pop(name, None)
        if meta.get("managedFields") is None and "managedFields" in old:
            meta["managedFields"] = old["managedFields"]

    @staticmethod
    def _update_errors(resource: Resource, value: Json, live: Json) -> list[FieldError]:
        """Errors of the new object that the old one did not have, and those of the change itself."""
        errors = resource.strategy.validate_update(value, live)
        found = resource.strategy.validate(value)
        if found:
            known = set(resource.strategy.validate(live))
            found = [error for error in found if error not in known]
        return errors + found

    @staticmethod
    def _prepare(resource: Resource, value: Json, live: Json, subresource: str, context: Context) -> None:
        """Puts back what this endpoint may not write."""
        if subresource == "status":
            status = value.get("status")
            meta = value["metadata"]
            for name in [name for name in value if name not in ("metadata", "status")]:
                del value[name]
            for name, item in live.items():
                if name not in ("metadata", "status"):
                    value[name] = item
            value.pop("status", None)
            if status is not None:
                value["status"] = status
            if resource.group == "apps" or resource.custom:
                for name in ("labels", "annotations", "finalizers", "ownerReferences"):
                    if resource.custom or name == "labels":
                        meta.pop(name, None)
                        if name in live["metadata"]:
                            meta[name] = live["metadata"][name]
        elif subresource == "finalize":
            finalizers = value["spec"].get("finalizers")
            for name, item in live.items():
                if name != "metadata":
                    value[name] = dict(item) if isinstance(item, dict) else item
            value["spec"].pop("finalizers", None)
            if finalizers:
                value["spec"]["finalizers"] = finalizers
        else:
            resource.strategy.prepare_update(value, live, context)

    @staticmethod
    def _finished(resource: Resource, value: Json) -> bool:
        """Whether nothing holds an object that is being deleted any more."""
        if value["metadata"].get("finalizers"):
            return False
        if resource.storage == "namespaces":
            return not value["spec"].get("finalizers")
        return not value["metadata"].get("deletionGracePeriodSeconds")

    # --- patch ---

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        media: str,
        options: Options,
        *,
        subresource: str = "",
        user: Any = None,
    ) -> Written:
        """Applies a patch of any kind; server-side apply creates what is not there."""
        accepted = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
        if resource.custom:
            accepted.remove(STRATEGIC_PATCH)
        if media not in accepted:
            raise unsupported_media_type(", ".join(accepted))
        if media == APPLY_PATCH:
            return self._apply(resource, namespace, name, patch, options, subresource, user)
        entry = self.head(resource, namespace, name)
        live = {"kind": resource.kind, "apiVersion": resource.api_version, **self.shown(resource, entry.value)}
        if media == JSON_PATCH:
            patched = apply_json_patch(live, patch)
        elif media == MERGE_PATCH:
            if not isinstance(patch, dict):
                raise bad_request(
                    "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}"
                )
            patched = apply_merge_patch(live, patch)
        else:
            patched = apply_strategic_patch(live, patch, resource.node)
        if not isinstance(patched, dict):
            raise bad_request("the patched object is no object")
        value, warnings = self._decode_patched(resource, name, patched, patch, options)
        meta = value["metadata"]
        if meta.get("name") != name:
            errors = [invalid("metadata.name", meta.get("name", ""), "field is immutable")]
            raise invalid_object(resource.group, resource.kind, name, errors)
        if resource.namespaced and meta.get("namespace") != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        return self._replace(resource, entry, value, options, subresource, warnings, user)

    def _decode_patched(
        self, resource: Resource, name: str, patched: Json, patch: Any, options: Options
    ) -> tuple[Json, list[str]]:
        try:
            self.check_kind(resource, patched)
            value, unknown = self._typed(resource, patched)
        except ApiError as error:
            detail = error.message.partition(": ")[2] or error.message
            raise self._bad_patch(resource, name, patch, detail) from error
        found = [] if options.field_validation == "Ignore" else [f'unknown field "{path}"' for path in unknown]
        if found and options.field_validation == "Strict":
            raise self._bad_patch(resource, name, patch, f"strict decoding error: {', '.join(found)}")
        return value, found

    @staticmethod
    def _bad_patch(resource: Resource, name: str, patch: Any, detail: str) -> ApiError:
        return invalid_object(resource.group, resource.kind, name, [invalid("patch", patch, detail)])

    def _apply(
        self, resource: Resource, namespace: str, name: str, config: Any, options: Options, subresource: str, user: Any
    ) -> Written:
        self.check_kind(resource, config)
        if not config.get("kind") or not config.get("apiVersion"):
            raise bad_request("apply requires apiVersion and kind to be set")
        decoder = Decoder()
        given = (config.get("metadata") or {}).get("name", name)
        if given != name:
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        if (config.get("metadata") or {}).get("managedFields"):
            raise bad_request("metadata.managedFields must be nil")
        try:
            decoder.object(
                {k: v for k, v in config.items() if k not in ("kind", "apiVersion")}, resource.node
            ) if not resource.custom else self._custom(resource, config, decoder)
        except TypeMismatchError as error:
            raise decode_error(resource.kind, resource.version, str(error)) from error
        if decoder.unknown:
            where = f"{namespace}/{name}" if namespace else name
            what = f"failed to create typed patch object ({where}; {resource.api_version}, Kind={resource.kind})"
            raise ApiError(500, "", f"{what}: .{decoder.unknown[0]}: field not declared in schema")
        bare = {key: item for key, item in config.items() if key not in ("kind", "apiVersion")}
        if resource.storage == "events" and resource.group:
            bare = from_new_event(bare)
        entry = self.table(resource).head(self.key(resource, namespace, name))
        if entry is None and subresource:
            raise not_found(resource.group, resource.plural, name)
        now = timestamp(self._now())
        manager = Manager(options.field_manager, "Apply", resource.api_version, subresource, now, set())
        live = entry.value if entry is not None else None
        empty: Json = {"metadata": {}}
        resets = self._resets(resource, subresource)
        merged = managed.apply(live, empty, bare, resource.node, manager, options.force, resets)
        value = self._typed(resource, merged)[0]
        warnings: list[str] = []
        meta = value["metadata"]
        meta["name"] = name
        if entry is None:
            return self.create(resource, namespace, None, options, user=user, applied=value)
        self._check_namespace(resource, namespace, meta)
        asked = (config.get("metadata") or {}).get("resourceVersion")
        if asked and asked != str(entry.revision):
            raise stale(resource.group, resource.plural, name)
        meta["resourceVersion"] = str(entry.revision)
        return self._replace(resource, entry, value, options, subresource, warnings, user, applied=True)

    # --- scale ---

    def set_replicas(
        self, resource: Resource, entry: Entry, path: list[str], replicas: int, options: Options, version: str
    ) -> Written:
        """Writes the replicas of a workload through its scale subresource."""
        if version and version != str(entry.revision):
            raise stale(resource.group, resource.plural, entry.name)
        value = entry.value
        target = value
        for part in path[:-1]:
            target = target.setdefault(part, {})
        target[path[-1]] = replicas
        value["metadata"].pop("resourceVersion")
        return self._replace(resource, entry, value, options, "scale", [], None, manager_time=False)

    # --- delete ---

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions) -> Written:
        """Deletes an object, or marks it as being deleted when something holds it."""
        entry = self.head(resource, namespace, name)
        live = entry.value
        self._check_preconditions(resource, name, live, options)
        value = entry.value
        meta = value["metadata"]
        finalizers = list(meta.get("finalizers") or ())
        for finalizer, policy in (("orphan", "Orphan"), ("foregroundDeletion", "Foreground")):
            if options.propagation == policy and finalizer not in finalizers:
                finalizers.append(finalizer)
            elif options.propagation and options.propagation != policy and finalizer in finalizers:
                finalizers.remove(finalizer)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        grace = self._grace(resource, value, options)
        held = (
            bool(finalizers) or grace > 0 or bool(resource.storage == "namespaces" and value["spec"].get("finalizers"))
        )
        if held:
            return self._mark(resource, entry, value, grace, options)
        if not options.dry_run:
            context = self._context(False)
            resource.strategy.release(live, context)
            _, done = self.store.delete(self.table(resource), entry.key, value)
        else:
            done = None
        if resource.storage in _RETURNS_DELETED:
            return Written(live, done)
        details: Json = {"name": name}
        if resource.group:
            details["group"] = resource.group
        details |= {"kind": resource.plural, "uid": meta["uid"]}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Written(live, done, 200, status=status)

    @staticmethod
    def _check_preconditions(resource: Resource, name: str, live: Json, options: DeleteOptions) -> None:
        meta = live["metadata"]
        if options.uid and options.uid != meta["uid"]:
            why = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
                "The object might have been deleted and then recreated"
            )
        elif options.resource_version and options.resource_version != meta["resourceVersion"]:
            why = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been modified"
            )
        else:
            return
        message = f'Operation cannot be fulfilled on {resource.kind} "{name}": {why}'
        if resource.group:
            message = f'Operation cannot be fulfilled on {resource.kind}.{resource.group} "{name}": {why}'
        details: Json = {"name": name, "kind": resource.kind}
        raise ApiError(409, "Conflict", message, {**({"group": resource.group} if resource.group else {}), **details})

    @staticmethod
    def _grace(resource: Resource, value: Json, options: DeleteOptions) -> int:
        """Seconds a pod gets to end: none unless a node runs it (pkg/registry/core/pod/strategy.go)."""
        if resource.storage != "pods":
            return 0
        spec, phase = value["spec"], (value.get("status") or {}).get("phase")
        if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
            return 0
        if options.grace is not None:
            return max(options.grace, 0)
        return int(spec.get("terminationGracePeriodSeconds", 30))

    def _mark(self, resource: Resource, entry: Entry, value: Json, grace: int, options: DeleteOptions) -> Written:
        meta = value["metadata"]
        if not meta.get("deletionTimestamp"):
            meta["deletionTimestamp"] = timestamp(self._now() + timedelta(seconds=grace))
            if resource.storage == "namespaces":
                value["status"] = {**(value.get("status") or {}), "phase": "Terminating"}
            else:
                meta["deletionGracePeriodSeconds"] = grace
            if meta.get("generation"):
                meta["generation"] += 1
        elif grace < meta.get("deletionGracePeriodSeconds", 0):
            meta["deletionGracePeriodSeconds"] = grace
            meta["deletionTimestamp"] = timestamp(self._now() + timedelta(seconds=grace))
        if value == entry.value or options.dry_run:
            return Written(value, self.store.waiting(entry.revision))
        written, done = self.store.put(self.table(resource), entry.key, value)
        return Written(value, done, entry=written)

    @staticmethod
    def shown(resource: Resource, value: Json) -> Json:
        """A stored value as this version of the resource spells it."""
        if resource.storage == "events" and resource.group:
            return to_new_event(value)
        return value


def same_but_times(value: Json, live: Json) -> bool:
    """Whether two versions of an object differ in nothing but the times of field ownership."""
    mine, theirs = value["metadata"], live["metadata"]
    if {k: v for k, v in value.items() if k != "metadata"} != {k: v for k, v in live.items() if k != "metadata"}:
        return False
    left = {key: item for key, item in mine.items() if key != "managedFields"}
    right = {key: item for key, item in theirs.items() if key != "managedFields"}
    if left != right:
        return False
    return _timeless(mine.get("managedFields")) == _timeless(theirs.get("managedFields"))


def _timeless(entries: Any) -> list[Json]:
    return [{key: item for key, item in entry.items() if key != "time"} for entry in entries or ()]


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)
