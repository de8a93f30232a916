"""Admission: what other objects say of a new one, before it is checked and stored.

The plugins are kube-apiserver's, with its names, which may be switched off (`--disable-admission-plugins`). Those that
set something run in its order when an object is created; LimitRanger and ResourceQuota have modules of their own. Not
here, since it is no choice: the life cycle of namespaces, DefaultTolerationSeconds, NodeRestriction.

Source: kubernetes/kubernetes plugin/pkg/admission.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from kproxy.apiserver.errors import Json, forbidden
from kproxy.apiserver.kinds.resources import Resource
from kproxy.apiserver.registry.limits import LimitRanges
from kproxy.apiserver.registry.quotas import Quotas
from kproxy.apiserver.storage.store import Entry, Store
from kproxy.errors import InputError

_LIMITS: Final = "LimitRanger"
_QUOTAS: Final = "ResourceQuota"
_MIRROR: Final = "kubernetes.io/config.mirror"
_CREDENTIALS: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_VOLUME: Final = "kube-api-access-"
_TOKEN_SECONDS: Final = 3607
_PRIORITIES: Final = "priorityclasses.scheduling.k8s.io"
_PREEMPTS: Final = "PreemptLowerPriority"


class _Refusal(Exception):  # noqa: N818
    """Why a plugin does not admit an object; answered with 403."""


class Admission:
    """The plugins of one store, without those in `disabled`; `suffix` makes the random end of a name."""

    def __init__(self, store: Store, disabled: Set[str], suffix: Callable[[], str]) -> None:
        self._store = store
        self._suffix = suffix
        self._limits = LimitRanges(store.tables["limitranges"]) if _LIMITS not in disabled else None
        self.quotas = Quotas(store, enabled=_QUOTAS not in disabled)
        self._setters: dict[str, list[Callable[[Admission, Json], None]]] = {}
        for name, storage, plugin in _SETTERS:
            if name not in disabled:
                self._setters.setdefault(storage, []).append(plugin)

    def complete(self, resource: Resource, namespace: str, value: Json) -> None:
        """Gives a new object what it does not say itself.

        Raises:
            ApiError: 403, it says something that it may not, or names what is not there.
        """
        if self._limits is not None:
            self._limits.set_defaults(resource, namespace, value)
        try:
            for plugin in self._setters.get(resource.storage, ()):
                plugin(self, value)
        except _Refusal as refusal:
            name = value["metadata"].get("name", "")
            raise forbidden(resource.group, resource.plural, name, str(refusal)) from refusal

    def check(self, resource: Resource, namespace: str, value: Json, old: Json | None) -> list[tuple[Entry, Json]]:
        """What `quotas.charge` has to write when the object is written.

        Raises:
            ApiError: 403, a LimitRange or a ResourceQuota does not allow it.
        """
        if self._limits is not None:
            self._limits.check(resource, namespace, value, old)
        return self.quotas.check(resource, namespace, value, old)

    def _find(self, storage: str, key: str) -> Json | None:
        entry = self._store.tables[storage].head(key)
        return None if entry is None else entry.value

    def _marked(self, storage: str, annotation: str) -> str | None:
        """The name of the newest object with an annotation `true`, the first of several as new."""
        found = [
            (each.value["metadata"]["creationTimestamp"], each.name)
            for each in sorted(self._store.tables[storage].heads(), key=lambda entry: entry.name, reverse=True)
            if (each.value["metadata"].get("annotations") or {}).get(annotation) == "true"
        ]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    # --- plugins ---

    def _service_account(self, pod: Json) -> None:
        """A Pod runs as a ServiceAccount, whose token it finds in a volume unless one of them does not want that.

        Unlike kube-apiserver's, it lets a Pod without a ServiceAccount of its own run before `default` is there.
        """
        meta, spec = pod["metadata"], pod["spec"]
        if _MIRROR in (meta.get("annotations") or {}):
            return
        name = spec.setdefault("serviceAccountName", "default")
        spec["serviceAccount"] = name
        account = self._find("serviceaccounts", f"{meta['namespace']}/{name}")
        if account is None:
            if name == "default":
                return
            what = f"{meta['namespace']}/{name}"
            raise _Refusal(f'error looking up service account {what}: serviceaccount "{name}" not found')
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = account["imagePullSecrets"]
        automount = "automountServiceAccountToken"
        if spec.get(automount, account.get(automount, True)):
            self._mount_token(spec)

    def _mount_token(self, spec: Json) -> None:
        volumes = spec.get("volumes") or []
        names = [each["name"] for each in volumes if each.get("name", "").startswith(_TOKEN_VOLUME)]
        name = names[0] if names else _TOKEN_VOLUME + self._suffix()
        mounted = False
        for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
            mounts = container.get("volumeMounts") or []
            if all(each.get("mountPath") != _CREDENTIALS for each in mounts):
                mount = {"name": name, "readOnly": True, "mountPath": _CREDENTIALS}
                container["volumeMounts"] = [*mounts, mount]
                mounted = True
        if mounted and not names:
            namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            sources: list[Json] = [
                {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [namespace]}},
            ]
            volume = {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
            spec["volumes"] = [*volumes, volume]

    def _priority(self, pod: Json) -> None:
        """The number and the preemption policy of a Pod's PriorityClass, else of the default one."""
        spec = pod["spec"]
        name = spec.get("priorityClassName")
        if name:
            found = self._find(_PRIORITIES, name)
            if found is None:
                raise _Refusal(f"no PriorityClass with name {name} was found")
        else:
            classes = [each.value for each in self._store.tables[_PRIORITIES].heads()]
            defaults = [each for each in classes if each.get("globalDefault")]
            found = min(defaults, key=lambda each: int(each.get("value", 0))) if defaults else {}
            if found:
                spec["priorityClassName"] = found["metadata"]["name"]
        for field, noun, wanted in (
            ("priority", "integer value of priority", found.get("value", 0)),
            ("preemptionPolicy", "string value of PreemptionPolicy", found.get("preemptionPolicy", _PREEMPTS)),
        ):
            if spec.setdefault(field, wanted) != wanted:
                raise _Refusal(
                    f"the {noun} ({spec[field]}) must not be provided in pod spec; priority admission controller "
                    f"computed {wanted} from the given PriorityClass name"
                )

    def _runtime_class(self, pod: Json) -> None:
        """The overhead of a Pod's RuntimeClass, and where it is run."""
        spec = pod["spec"]
        name = spec.get("runtimeClassName")
        found = self._find("runtimeclasses.node.k8s.io", name) if name else {}
        if found is None:
            raise _Refusal(f'pod rejected: RuntimeClass "{name}" not found')
        overhead = (found.get("overhead") or {}).get("podFixed") or {}
        if spec.get("overhead") and not overhead:
            raise _Refusal("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        if overhead and spec.setdefault("overhead", overhead) != overhead:
            raise _Refusal("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        scheduling, labels = found.get("scheduling") or {}, spec.get("nodeSelector") or {}
        for key, text in (scheduling.get("nodeSelector") or {}).items():
            if labels.get(key, text) != text:
                raise _Refusal(
                    f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {text}; "
                    f"pod.spec.nodeSelector[{key}] = {labels[key]}"
                )
            spec["nodeSelector"] = labels = {**labels, key: text}
        held = spec.get("tolerations") or []
        if more := [each for each in scheduling.get("tolerations") or () if each not in held]:
            spec["tolerations"] = [*held, *more]

    def _storage_class(self, claim: Json) -> None:
        old = "volume.beta.kubernetes.io/storage-class"
        if "storageClassName" in claim["spec"] or old in (claim["metadata"].get("annotations") or {}):
            return
        name = self._marked("storageclasses.storage.k8s.io", "storageclass.kubernetes.io/is-default-class")
        if name is not None:
            claim["spec"]["storageClassName"] = name

    def _ingress_class(self, ingress: Json) -> None:
        old = "kubernetes.io/ingress.class"
        if "ingressClassName" in ingress["spec"] or old in (ingress["metadata"].get("annotations") or {}):
            return
        name = self._marked("ingressclasses.networking.k8s.io", "ingressclass.kubernetes.io/is-default-class")
        if name is not None:
            ingress["spec"]["ingressClassName"] = name

    def _default_priority(self, value: Json) -> None:
        """Only one PriorityClass may be the default."""
        if value.get("globalDefault"):
            for each in self._store.tables[_PRIORITIES].heads():
                if each.name != value["metadata"].get("name") and each.value.get("globalDefault"):
                    raise _Refusal(
                        f"PriorityClass {each.name} is already marked as default. Only one default can exist"
                    )


_SETTERS: Final[tuple[tuple[str, str, Callable[[Admission, Json], None]], ...]] = (
    ("ServiceAccount", "pods", Admission._service_account),
    ("Priority", "pods", Admission._priority),
    ("Priority", _PRIORITIES, Admission._default_priority),
    ("DefaultStorageClass", "persistentvolumeclaims", Admission._storage_class),
    ("RuntimeClass", "pods", Admission._runtime_class),
    ("DefaultIngressClass", "ingresses.networking.k8s.io", Admission._ingress_class),
)
"""Plugins that look at a new object of one resource, in their order: name, resource, what they do."""
PLUGINS: Final = frozenset({_LIMITS, _QUOTAS, *(name for name, _, _ in _SETTERS)})
"""All that can be switched off."""


def parse_plugins(text: str) -> frozenset[str]:
    """The plugins of a list.

    >>> sorted(parse_plugins("Priority, ServiceAccount"))
    ['Priority', 'ServiceAccount']

    Raises:
        InputError: a name is unknown.
    """
    names = frozenset(filter(None, (part.strip() for part in text.split(","))))
    for name in sorted(names - PLUGINS):
        raise InputError(f"--disable-admission-plugins: no plugin {name}; there are {', '.join(sorted(PLUGINS))}")
    return names
