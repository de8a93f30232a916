"""Services: defaults, cluster IPs, node ports, families, immutable fields.

Sources: kubernetes/kubernetes pkg/apis/core/v1/defaults.go, pkg/registry/core/service (strategy.go, storage/alloc.go,
storage/storage.go) and pkg/apis/core/validation (ValidateServiceUpdate).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from kproxy.api.addresses import canonical_ip, ip_family
from kproxy.api.fielderror import FieldError, internal, invalid, not_supported, required
from kproxy.api.validation.names import check_dns_label
from kproxy.api.validation.service import validate_service
from kproxy.api.validation.strict import strict_errors
from kproxy.api.wire import structs
from kproxy.api.wire.convert import convert_service
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.allocator import AllocationError
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy
from kproxy.apiserver.schema.field_paths import Path

_NODE_PORT_TYPES = ("NodePort", "LoadBalancer")


def needs_cluster_ip(spec: Json) -> bool:
    """Whether the type has cluster IPs."""
    return spec.get("type") in ("ClusterIP", "NodePort", "LoadBalancer")


def needs_node_port(spec: Json) -> bool:
    """Whether the ports get node ports by themselves."""
    if spec.get("type") == "NodePort":
        return True
    return spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False


def needs_health_port(spec: Json) -> bool:
    """Whether it has a health-check node port."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _accessible(spec: Json) -> bool:
    return spec.get("type") in _NODE_PORT_TYPES or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


def _node_ports(spec: Json) -> set[int]:
    return {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}


_POLICIES: Final = {
    "internalTrafficPolicy": ("Cluster", "Local"),
    "ipFamilyPolicy": ("PreferDualStack", "RequireDualStack", "SingleStack"),
    "trafficDistribution": ("PreferClose", "PreferSameNode", "PreferSameZone"),
}
"""Enumerations that "" is not one of, though the wire structs take it for absent."""


class ServiceStrategy(Strategy):
    """core/v1 Service."""

    def check_name(self, name: str) -> tuple[str, ...]:
        return check_dns_label(name)

    spec_resets: tuple[Path, ...] = (STATUS,)
    returns_deleted: ClassVar[bool] = True
    create_on_update: ClassVar[bool] = True

    def default(self, value: Json) -> None:
        spec = value["spec"]
        spec.setdefault("sessionAffinity", "None")
        if spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        elif spec["sessionAffinity"] == "ClientIP":
            config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            config.setdefault("timeoutSeconds", 10800)
        spec.setdefault("type", "ClusterIP")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port["port"]
        if _accessible(spec):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if needs_cluster_ip(spec):
            spec.setdefault("internalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)
            for ingress in value["status"]["loadBalancer"].get("ingress") or ():
                if ingress.get("ip"):
                    ingress.setdefault("ipMode", "VIP")

    def prepare_create(self, value: Json, context: Context) -> None:
        value["status"] = {"loadBalancer": {}}
        spec = value["spec"]
        if not spec.get("clusterIPs") and spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif spec.get("clusterIPs") and not spec.get("clusterIP"):
            # The API server does not fill in clusterIP, so that validation reports the contradiction.
            spec["clusterIP"] = ""

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        value["status"] = old.get("status") or {"loadBalancer": {}}
        spec, before = value["spec"], old["spec"]
        _patch_allocated(spec, before)
        _normalise_ips(spec, before)
        _drop_dependent(spec, before)
        _trim_second_family(spec, before)

    def validate(self, value: Json) -> list[FieldError]:
        spelled = msgspec.convert({"kind": "Service", **value}, structs.WireService)
        errors = validate_service(convert_service(spelled), metadata=False)
        spec = value["spec"]
        if spec.get("clusterIPs") and not spec.get("clusterIP"):
            errors.append(required("spec.clusterIP", "may not be empty if `clusterIPs` is set"))
        errors += [not_supported(f"spec.{n}", "", known) for n, known in _POLICIES.items() if spec.get(n) == ""]
        return errors + strict_errors(spelled)

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        spec, before = value["spec"], old["spec"]
        errors: list[FieldError] = []
        if needs_cluster_ip(spec) and needs_cluster_ip(before):
            errors += _changed_ips(spec, before) + _changed_families(spec, before)
        if spec.get("type") == before.get("type") == "LoadBalancer" and spec.get("loadBalancerClass") != before.get(
            "loadBalancerClass"
        ):
            errors.append(invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"))
        if (
            needs_health_port(spec)
            and needs_health_port(before)
            and spec.get("healthCheckNodePort") != before.get("healthCheckNodePort")
        ):
            errors.append(invalid("spec.healthCheckNodePort", spec.get("healthCheckNodePort", 0), "field is immutable"))
        return errors

    # --- allocation ---

    def allocate(self, value: Json, old: Json | None, context: Context) -> list[FieldError]:
        before = old["spec"] if old is not None else {}
        errors = self._families(value["spec"], before, context)
        if errors:
            return errors
        taken: list[tuple[str, Any]] = []
        for step in (self._take_ips, self._take_ports, self._take_health_port):
            errors = step(value["spec"], before, context, taken)
            if errors:
                break
        if errors or context.dry_run:
            for kind, what in taken:
                self._give_back(kind, what, context)
            return errors
        if old is not None:
            self._release_dropped(value["spec"], before, context)
        return []

    def release(self, value: Json, context: Context) -> None:
        self._release_dropped({}, value["spec"], context)

    def _release_dropped(self, spec: Json, before: Json, context: Context) -> None:
        kept = set(spec.get("clusterIPs") or ())
        for ip in before.get("clusterIPs") or ():
            if ip not in kept and ip != "None":
                self._give_back("ip", ip, context)
        for port in _node_ports(before) - _node_ports(spec):
            self._give_back("port", port, context)
        health = before.get("healthCheckNodePort")
        if health and health != spec.get("healthCheckNodePort"):
            self._give_back("port", health, context)

    @staticmethod
    def _give_back(kind: str, what: Any, context: Context) -> None:
        if kind == "ip":
            family = ip_family(what)
            if family in context.allocators.addresses:
                context.allocators.addresses[family].give_back(what)
        else:
            context.allocators.ports.give_back(what)

    def _families(self, spec: Json, before: Json, context: Context) -> list[FieldError]:
        """Fills in ipFamilyPolicy and ipFamilies (initIPFamilyFields)."""
        if not needs_cluster_ip(spec):
            return []
        configured = context.allocators.families
        ips = [ip for ip in spec.get("clusterIPs") or () if ip != "None"]
        headless = (spec.get("clusterIPs") or [""])[0] == "None"
        families = list(spec.get("ipFamilies") or ())
        families += [ip_family(canonical_ip(ip) or ip) for ip in ips[len(families) :]]
        for index, family in enumerate(families):
            if family not in configured:
                text = "not configured on this cluster"
                return [invalid(f"spec.ipFamilies[{index}]", family, text)]
        policy = spec.get("ipFamilyPolicy")
        if policy is None:
            if len(ips) == 2 or len(families) == 2:
                text = "must be RequireDualStack or PreferDualStack when multiple IP families are specified"
                if not before:
                    return [invalid("spec.ipFamilyPolicy", None, text)]
            policy = "SingleStack"
            if headless and not spec.get("selector"):
                policy = "RequireDualStack"
        if not families:
            families = [configured[0]]
        if policy != "SingleStack" and len(families) == 1:
            other = [family for family in configured if family != families[0]]
            if other:
                families += other
            elif headless and not spec.get("selector"):
                families.append("IPv6" if families[0] == "IPv4" else "IPv4")
            elif policy == "RequireDualStack":
                text = "this cluster is not configured for dual-stack services"
                return [invalid("spec.ipFamilyPolicy", policy, text)]
        if policy == "SingleStack" and before and len(before.get("ipFamilies") or ()) == 2:
            families = families[:1]
            if len(ips) == 2:
                spec["clusterIPs"] = ips[:1]
        spec["ipFamilies"], spec["ipFamilyPolicy"] = families, policy
        return []

    def _take_ips(self, spec: Json, before: Json, context: Context, taken: list[tuple[str, Any]]) -> list[FieldError]:
        if not needs_cluster_ip(spec):
            return []
        ips = list(spec.get("clusterIPs") or ())
        if ips[:1] == ["None"]:
            return []
        owned = set(before.get("clusterIPs") or ())
        wanted = [ip for ip in ips if ip not in owned]
        try:
            for ip in wanted:
                pool = context.allocators.addresses.get(ip_family(ip))
                if pool is None:
                    raise AllocationError(
                        f"failed to allocate IP {ip}: the provided network does not match the current range"
                    )
                pool.take(ip)
                taken.append(("ip", ip))
            for family in spec["ipFamilies"][len(ips) :]:
                pool = context.allocators.addresses[family]
                ip = pool.dry if context.dry_run else pool.take_any()
                if not context.dry_run:
                    taken.append(("ip", ip))
                ips.append(ip)
        except AllocationError as error:
            return [invalid("spec.clusterIPs", ips, str(error))]
        spec["clusterIPs"], spec["clusterIP"] = ips, ips[0]
        return []

    def _take_ports(self, spec: Json, before: Json, context: Context, taken: list[tuple[str, Any]]) -> list[FieldError]:
        pool = context.allocators.ports
        owned = _node_ports(before)
        mine: set[int] = set()
        if spec.get("type") not in _NODE_PORT_TYPES:
            return []
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort", 0)
            if number:
                if number not in owned and number not in mine:
                    try:
                        pool.take(number)
                    except AllocationError as error:
                        return [invalid(f"spec.ports[{index}].nodePort", number, str(error))]
                    taken.append(("port", number))
                mine.add(number)
        if not needs_node_port(spec):
            return []
        protocols: dict[int, int] = {}
        for index, port in enumerate(spec.get("ports") or ()):
            if port.get("nodePort"):
                protocols.setdefault(port["port"], port["nodePort"])
                continue
            same = protocols.get(port["port"])
            if same is not None:
                port["nodePort"] = same  # the same port with another protocol shares the node port
                continue
            try:
                number = pool.take_any()
            except AllocationError as error:
                text = f"failed to allocate a nodePort: {error}"
                return [internal(f"spec.ports[{index}].nodePort", text)]
            taken.append(("port", number))
            protocols[port["port"]] = port["nodePort"] = number
        return []

    def _take_health_port(
        self, spec: Json, before: Json, context: Context, taken: list[tuple[str, Any]]
    ) -> list[FieldError]:
        if not needs_health_port(spec):
            return []
        number = spec.get("healthCheckNodePort", 0)
        if number and number == before.get("healthCheckNodePort"):
            return []
        try:
            if number:
                context.allocators.ports.take(number)
            else:
                number = context.allocators.ports.take_any()
        except AllocationError as error:
            text = f"failed to allocate requested HealthCheck NodePort {number}: {error}"
            return [internal("spec.healthCheckNodePort", text)]
        taken.append(("port", number))
        spec["healthCheckNodePort"] = number
        return []


def _patch_allocated(spec: Json, before: Json) -> None:
    """Keeps allocated values that the client left out (patchAllocatedValues)."""
    if needs_cluster_ip(spec) and needs_cluster_ip(before):
        if not spec.get("clusterIP") and not spec.get("clusterIPs") and before.get("clusterIP"):
            spec["clusterIP"] = before["clusterIP"]
            spec["clusterIPs"] = list(before.get("clusterIPs") or [before["clusterIP"]])
        if not spec.get("ipFamilies") and before.get("ipFamilies"):
            spec["ipFamilies"] = list(before["ipFamilies"])
        if not spec.get("ipFamilyPolicy") and before.get("ipFamilyPolicy"):
            spec["ipFamilyPolicy"] = before["ipFamilyPolicy"]
    if spec.get("type") in _NODE_PORT_TYPES and before.get("type") in _NODE_PORT_TYPES:
        used = _node_ports(before) & _node_ports(spec)
        by_name = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        for port in spec.get("ports") or ():
            kept = by_name.get(port.get("name", ""), 0)
            if not port.get("nodePort") and kept and kept not in used:
                port["nodePort"] = kept
                used.add(kept)
    if needs_health_port(spec) and needs_health_port(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort", 0)


def _normalise_ips(spec: Json, before: Json) -> None:
    """Lets a change of clusterIP alone carry over to clusterIPs, and the other way round."""
    ip, ips = spec.get("clusterIP", ""), spec.get("clusterIPs") or []
    old_ip, old_ips = before.get("clusterIP", ""), before.get("clusterIPs") or []
    if ip != old_ip and ips == old_ips:
        if ip:
            spec["clusterIPs"] = [ip]
        else:
            spec.pop("clusterIPs", None)
    elif ip == old_ip and ips != old_ips and not ips:
        spec.pop("clusterIP", None)


def _trim_second_family(spec: Json, before: Json) -> None:
    """Lets a change of the policy to SingleStack alone drop the second family (trimFieldsForDualStackDowngrade)."""
    if before.get("ipFamilyPolicy") in (None, "SingleStack") or spec.get("ipFamilyPolicy") != "SingleStack":
        return
    for name in ("clusterIPs", "ipFamilies"):
        if len(spec.get(name) or ()) == 2 and spec.get(name) == before.get(name):
            spec[name] = spec[name][:1]


def _drop_dependent(spec: Json, before: Json) -> None:
    """Drops what the type does not have any more, unless the client has just set it (dropTypeDependentFields)."""
    if needs_cluster_ip(before) and not needs_cluster_ip(spec):
        if spec.get("clusterIPs") == before.get("clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for name in ("ipFamilies", "ipFamilyPolicy"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    lost = before.get("type") in _NODE_PORT_TYPES and spec.get("type") not in _NODE_PORT_TYPES
    if lost and _node_ports(spec) == _node_ports(before):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    same_health = spec.get("healthCheckNodePort") == before.get("healthCheckNodePort")
    if needs_health_port(before) and not needs_health_port(spec) and same_health:
        spec.pop("healthCheckNodePort", None)
    if before.get("type") == "LoadBalancer" != spec.get("type"):
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
    same_policy = spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy")
    if _accessible(before) and not _accessible(spec) and same_policy:
        spec.pop("externalTrafficPolicy", None)
    if before.get("type") != "ExternalName" == spec.get("type") and spec.get("internalTrafficPolicy") == before.get(
        "internalTrafficPolicy"
    ):
        spec.pop("internalTrafficPolicy", None)


# --- how cluster IPs and families may change: the first stays, a second comes and goes with the policy ---


def _headless(spec: Json) -> bool:
    return spec.get("clusterIPs") == ["None"]


def _changed_ips(spec: Json, before: Json) -> list[FieldError]:
    """Cluster IPs stay; only the second may be added, or given back (validateUpgradeDowngradeClusterIPs)."""
    mine, theirs = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if _headless(spec) and _headless(before):
        return []
    if theirs and not mine:
        return [invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")]
    errors = [
        invalid(f"spec.clusterIPs[{index}]", mine, "may not change once set")
        for index, (new, old) in enumerate(zip(mine, theirs, strict=False))
        if new != old
    ]
    if len(mine) < len(theirs):
        errors += _released(spec, "secondary clusterIP")
    return errors


def _changed_families(spec: Json, before: Json) -> list[FieldError]:
    """The same for families, which a headless Service may change (validateUpgradeDowngradeIPFamilies)."""
    mine, theirs = spec.get("ipFamilies") or [], before.get("ipFamilies") or []
    if _headless(spec) or _headless(before):
        return []
    errors = [
        invalid("spec.ipFamilies[0]", mine, "may not change once set")
        for new, old in zip(mine, theirs, strict=False)
        if new != old
    ]
    if mine and len(mine) < len(theirs):
        errors += _released(spec, "secondary ipFamily")
    return errors


def _released(spec: Json, what: str) -> list[FieldError]:
    policy = spec.get("ipFamilyPolicy")
    if policy == "SingleStack":
        return []
    return [invalid("spec.ipFamilyPolicy", policy, f"must be set to 'SingleStack' when releasing the {what}")]
