"""Requests that are answered and not stored: access reviews, token reviews, token requests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kproxy.api.fielderror import invalid as invalid_field
from kproxy.api.fielderror import required
from kproxy.apiserver.auth.authentication import ISSUER, Authenticator, ServiceAccountTokens, User, audiences_of
from kproxy.apiserver.auth.rbac import Attributes, Authorizer, rules_review
from kproxy.apiserver.errors import Json, bad_request, conflict, invalid, not_found
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.coercion import decode, empty
from kproxy.apiserver.registry.registry import Registry
from kproxy.apiserver.registry.writes import Options, timestamp
from kproxy.apiserver.schema import managed_fields
from kproxy.apiserver.schema.managed_fields import Manager
from kproxy.apiserver.schema.types import named
from kproxy.apiserver.storage.store import Entry

_SHORTEST: Final = 600
_LONGEST: Final = 1 << 32


class Reviews:
    def __init__(
        self, registry: Registry, authorizer: Authorizer, authenticator: Authenticator, tokens: ServiceAccountTokens
    ) -> None:
        self._registry = registry
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._tokens = tokens

    def review(
        self, resource: Resource, namespace: str, body: Any, options: Options, user: User
    ) -> tuple[Json, list[str]]:
        """The answer to a review, without kind and apiVersion, and warnings.

        Raises:
            StatusError: 400 or 422.
        """
        value, warnings = decode(resource, body, options)
        value["metadata"].pop("managedFields", None)
        self._own(resource, value, options)
        spec = value.get("spec") or {}
        match resource.kind:
            case "SelfSubjectAccessReview":
                value["status"] = self._access(resource, spec, user)
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                if not spec.get("user") and not spec.get("groups"):
                    errors = [required("spec.user", "at least one of user or group must be specified")]
                    raise invalid(resource.group, resource.kind, "", errors)
                if resource.kind == "LocalSubjectAccessReview":
                    given = (spec.get("resourceAttributes") or {}).get("namespace", "")
                    if given != namespace:
                        raise bad_request("spec.resourceAttributes.namespace must match metadata.namespace")
                wanted = User(spec.get("user", ""), tuple(spec.get("groups") or ()))
                value["status"] = self._access(resource, spec, wanted)
            case "SelfSubjectRulesReview":
                if not spec.get("namespace"):
                    raise bad_request("no namespace on request")
                value["status"] = rules_review(self._authorizer.grants(user), spec["namespace"])
                if "system:masters" in user.groups:
                    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
                    value["status"]["resourceRules"].append(everything)
                    value["status"]["nonResourceRules"].append({"verbs": ["*"], "nonResourceURLs": ["*"]})
            case "SelfSubjectReview":
                value = {
                    "metadata": {"creationTimestamp": timestamp(self._registry.now())},
                    "status": {"userInfo": user.info},
                }
            case "TokenReview":
                value["status"] = self._token(spec)
        return value, warnings

    def _own(self, resource: Resource, value: Json, options: Options) -> None:
        moment = timestamp(self._registry.now())
        manager = Manager(options.field_manager, "Update", resource.api_version, "", moment, set())
        resets = (("f:status",),)
        managed_fields.update_managers(empty(resource), value, resource.node, manager, resets, [])

    def _access(self, resource: Resource, spec: Json, user: User) -> Json:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (about is None) == (path is None):
            text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(resource.group, resource.kind, "", [invalid_field("spec.resourceAttributes", None, text)])
        if about is not None:
            names = ("verb", "group", "resource", "subresource", "namespace", "name")
            attributes = Attributes(*(about.get(name, "") for name in names))
        else:
            assert path is not None
            attributes = Attributes(path.get("verb", ""), path=path.get("path", ""))
        allowed, reason = self._authorizer.allows(user, attributes)
        return {"allowed": allowed, "reason": reason} if reason else {"allowed": allowed}

    def _token(self, spec: Json) -> Json:
        audiences, token = tuple(spec.get("audiences") or (ISSUER,)), spec.get("token", "")
        user = self._authenticator.of_token(token, audiences)
        if user is None:
            return {"user": {}, "error": "invalid bearer token, token lookup failed"}
        meant = set(audiences_of(token))
        return {"authenticated": True, "user": user.info, "audiences": [each for each in audiences if each in meant]}

    def token_request(
        self, resource: Resource, namespace: str, name: str, body: Any, options: Options, user: User
    ) -> tuple[Json, list[str]]:
        """A token for a service account (TokenRequest).

        Raises:
            StatusError: 403 for a kubelet without a Pod of its own; 404 without the account or what the token is
                to be bound to; 422 for a bad expiry.
        """
        account = self._registry.head(resource, namespace, name)
        request = Resource(
            "authentication.k8s.io", "v1", "TokenRequest", "tokenrequests",
            named("io.k8s.api.authentication.v1.TokenRequest"), storage="tokenrequests",
        )  # fmt: skip
        value, warnings = decode(request, body, options)
        spec = value["spec"]
        seconds = spec.setdefault("expirationSeconds", 3600)
        if not _SHORTEST <= seconds <= _LONGEST:
            why = (
                "may not specify a duration less than 10 minutes"
                if seconds < _SHORTEST
                else "may not specify a duration larger than 2^32 seconds"
            )
            errors = [invalid_field("spec.expirationSeconds", seconds, why)]
            raise invalid(request.group, request.kind, name, errors)
        value["metadata"].pop("managedFields", None)
        self._own(request, value, options)
        owners = value["metadata"].get("managedFields")
        if not spec.get("audiences"):
            spec["audiences"] = [ISSUER]
        now = self._registry.now()
        bound = self._bound(namespace, name, spec.get("boundObjectRef"))
        token = self._tokens.issue(namespace, name, account.uid, spec["audiences"], seconds, now, bound)
        metadata: Json = {"name": name, "namespace": namespace, "uid": account.uid, "creationTimestamp": timestamp(now)}
        if owners:
            metadata["managedFields"] = owners
        until = timestamp(now + timedelta(seconds=seconds))
        spec.setdefault("boundObjectRef", None)
        return {"metadata": metadata, "spec": spec, "status": {"token": token, "expirationTimestamp": until}}, warnings

    def _bound(self, namespace: str, account: str, reference: Json | None) -> Json | None:
        """The claims of the object that a token is to be bound to; of a Pod, its node's, too.

        Source: kubernetes/kubernetes pkg/registry/core/serviceaccount/storage/token.go.
        """
        if reference is None:
            return None
        kind, version, name = (reference.get(key, "") for key in ("kind", "apiVersion", "name"))
        claim = kind.lower()
        if version != "v1" or kind not in ("Pod", "Secret", "Node"):
            group, _, plain = version.rpartition("/")
            text = f'cannot bind token for serviceaccount "{account}" to object type {group}/{plain}, Kind={kind}'
            raise bad_request(text)
        entry = self._head(f"{claim}s", "" if kind == "Node" else namespace, name)
        if entry is None:
            raise not_found("", f"{claim}s", name)
        claims: Json = {claim: {"name": name, "uid": entry.uid}}
        if kind == "Pod":
            spec = entry.value["spec"]
            if (spec.get("serviceAccountName") or "default") != account:
                why = "to pod running with different serviceaccount name."
                raise bad_request(f'cannot bind token for serviceaccount "{account}" {why}')
            node = self._head("nodes", "", spec.get("nodeName", ""))
            if node is not None:
                claims["node"] = {"name": node.name, "uid": node.uid}
        uid = reference.get("uid")
        if uid and uid != entry.uid:
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            raise conflict("", kind, name, f"{why}The object might have been deleted and then recreated")
        return claims

    def _head(self, plural: str, namespace: str, name: str) -> Entry | None:
        return self._registry.store.table(plural).head(f"{namespace}/{name}" if namespace else name)
