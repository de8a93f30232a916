"""The API server's checks of a Service, message by message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kproxy.api.types.core import ServicePort
from kproxy.api.validation.service import validate_service
from kproxy.api.wire import convert, structs

BASE: dict[str, Any] = {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}
LB: dict[str, Any] = {**BASE, "type": "LoadBalancer"}


def errors(spec: dict[str, Any], **rest: Any) -> list[str]:
    value = {"metadata": {"name": "a"}, "spec": spec, **rest}
    return [
        str(error) for error in validate_service(convert.convert_service(msgspec.convert(value, structs.WireService)))
    ]


def test_recorded_answer_of_a_v1_36_2_api_server() -> None:
    spec = {
        "ports": [{"port": 0, "protocol": "XXX"}, {"port": 80, "name": "a"}, {"port": 80, "name": "a"}],
        "selector": {"app": "bad"},
        "type": "Weird",
        "sessionAffinity": "Maybe",
        "externalIPs": ["nonsense"],
        "loadBalancerSourceRanges": ["1.2.3.4"],
    }
    assert errors(spec) == [
        "spec.ports[0].name: Required value",
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        'spec.ports[0].protocol: Unsupported value: "XXX": supported values: "SCTP", "TCP", "UDP"',
        "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
        'spec.ports[2].name: Duplicate value: "a"',
        'spec.sessionAffinity: Unsupported value: "Maybe": supported values: "ClientIP", "None"',
        'spec.externalIPs[0]: Invalid value: "nonsense": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
        'spec.type: Unsupported value: "Weird": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '
        '"NodePort"',
        'spec.ports[2]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,'
        '"NodePort":0}',
        "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        'spec.LoadBalancerSourceRanges[0]: Invalid value: "1.2.3.4": must be a valid CIDR value, '
        "(e.g. 10.9.8.0/24 or 2001:db8::/64)",
    ]


@pytest.mark.parametrize(
    "spec",
    [
        BASE,
        {"ports": [{"port": 80}]},
        {"clusterIP": "None"},
        {"clusterIP": "None", "ports": [{"port": 80}]},
        {"clusterIP": "None", "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
        {"clusterIPs": ["fd00::1", "10.0.0.1"], "ports": [{"port": 1}]},
        {**BASE, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"},
        {**BASE, "ports": [{"name": "a", "port": 53, "protocol": "UDP"}, {"name": "b", "port": 53}]},
        {**BASE, "ports": [{"port": 80, "targetPort": "http", "appProtocol": "kubernetes.io/h2c"}]},
        {**BASE, "type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
        {**BASE, "type": "NodePort", "externalTrafficPolicy": "Local"},
        {**BASE, "externalIPs": ["192.0.2.1"], "externalTrafficPolicy": "Local"},
        {**BASE, "sessionAffinity": "ClientIP"},
        {**BASE, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}},
        {**BASE, "trafficDistribution": "PreferSameNode", "internalTrafficPolicy": "Local"},
        {"type": "ExternalName", "externalName": "example.org."},
        {"type": "ExternalName", "externalName": "example.org", "ports": [{"port": 80}]},
        {**LB, "loadBalancerSourceRanges": [" 10.0.0.0/8 ", "198.51.100.7/24"]},
        {**LB, "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000},
        {**LB, "loadBalancerClass": "example.com/lb", "allocateLoadBalancerNodePorts": False},
    ],
)
def test_legal(spec: dict[str, Any]) -> None:
    assert errors(spec) == []


def test_names_may_start_with_a_digit_since_v1_36() -> None:
    assert errors(BASE, metadata={"name": "1password"}) == []
    assert errors(BASE, metadata={"name": "a.b"}) == ['metadata.name: Invalid value: "a.b": must not contain dots']


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"clusterIP": "10.0.0.1"}, ["spec.ports: Required value"]),
        (
            {**BASE, "ports": [{"port": 80}, {"port": 81, "name": "b"}]},
            ["spec.ports[0].name: Required value"],
        ),
        (
            {**BASE, "ports": [{"port": 80, "name": "a.b"}]},
            ['spec.ports[0].name: Invalid value: "a.b": must not contain dots'],
        ),
        (
            {**BASE, "ports": [{"port": 80, "targetPort": "a--b"}]},
            ['spec.ports[0].targetPort: Invalid value: "a--b": must not contain consecutive hyphens'],
        ),
        (
            {**BASE, "ports": [{"port": 80, "targetPort": 70000}]},
            ["spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        ),
        (
            {**BASE, "ports": [{"port": 80, "appProtocol": "/x"}]},
            ['spec.ports[0].appProtocol: Invalid value: "/x": prefix part must be non-empty'],
        ),
        (
            {**BASE, "ports": [{"port": 80, "nodePort": 30000}]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        (
            {**BASE, "type": "NodePort", "ports": [{"port": 80, "nodePort": 65536}]},
            ["spec.ports[0].nodePort: Invalid value: 65536: must be between 1 and 65535, inclusive"],
        ),
        (
            {**BASE, "type": "NodePort", "ports": [
                {"name": "a", "port": 80, "nodePort": 30000}, {"name": "b", "port": 81, "nodePort": 30000},
                {"name": "c", "port": 80, "protocol": "UDP", "nodePort": 30000}]},
            ["spec.ports[1].nodePort: Duplicate value: 30000"],
        ),
        (
            {**BASE, "selector": {"a": "b c"}},
            None,
        ),
        (
            {**BASE, "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}},
            ["spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: "
             "must be greater than 0 and less than 86400"],
        ),
        (
            {**BASE, "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.1"]},
            ['spec.clusterIPs: Invalid value: ["10.96.0.1"]: first value must match `clusterIP`'],
        ),
        (
            {**BASE, "clusterIP": "nope"},
            ['spec.clusterIPs[0]: Invalid value: "nope": must be a valid IP address, '
             "(e.g. 10.9.8.7 or 2001:db8::ffff)"],
        ),
        (
            {"ports": [{"port": 1}], "clusterIPs": ["None", "10.0.0.1"]},
            ['spec.clusterIPs: Invalid value: ["None","10.0.0.1"]: \'None\' must be the first and only value'],
        ),
        (
            {"ports": [{"port": 1}], "clusterIPs": ["10.0.0.1", "10.0.0.2"]},
            ['spec.ipFamilies[1]: Duplicate value: "IPv4"',
             'spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: '
             "may specify no more than one IP for each IP family"],
        ),
        (
            {"ports": [{"port": 1}], "clusterIPs": ["10.0.0.1", "fd00::1", "fd00::2"],
             "ipFamilies": ["IPv4", "IPv6"]},
            ['spec.ipFamilies[2]: Duplicate value: "IPv6"',
             'spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","fd00::2"]: may only hold up to 2 values',
             'spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","fd00::2"]: '
             "may specify no more than one IP for each IP family"],
        ),
        (
            {**BASE, "ipFamilies": ["IPv6"]},
            ['spec.clusterIPs[0]: Invalid value: "10.96.0.1": expected an IPv6 value as indicated by `ipFamilies[0]`'],
        ),
        (
            {**BASE, "ipFamilies": ["IPv5"]},
            ['spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"'],
        ),
        (
            {**BASE, "ipFamilyPolicy": "Dual"},
            ['spec.ipFamilyPolicy: Unsupported value: "Dual": supported values: "PreferDualStack", '
             '"RequireDualStack", "SingleStack"'],
        ),
        (
            {"ports": [{"port": 1}], "clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilyPolicy": "SingleStack"},
            ['spec.ipFamilyPolicy: Invalid value: "SingleStack": must be \'RequireDualStack\' or \'PreferDualStack\' '
             "when multiple cluster IPs are specified",
             'spec.ipFamilyPolicy: Invalid value: "SingleStack": must be \'RequireDualStack\' or \'PreferDualStack\' '
             "when multiple IP families are specified"],
        ),
        (
            {**BASE, "externalIPs": ["127.0.0.1", "192.0.2.1"]},
            ['spec.externalIPs[0]: Invalid value: "127.0.0.1": '
             "may not be in the loopback range (127.0.0.0/8, ::1/128)"],
        ),
        (
            {"clusterIP": "None", "type": "NodePort"},
            ["spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"],
        ),
        (
            {**LB, "clusterIP": "None"},
            ["spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services"],
        ),
        (
            {**LB, "ports": [{"port": 10250}]},
            ["spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet"],
        ),
        (
            {"type": "ExternalName", "clusterIP": "None", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
            ["spec.clusterIPs: Forbidden: may not be set for ExternalName services",
             "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
             "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
             "spec.externalName: Required value"],
        ),
        (
            {**LB, "loadBalancerSourceRanges": [" 10.0.0.0 "]},
            ['spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, '
             "(e.g. 10.9.8.0/24 or 2001:db8::/64)"],
        ),
        (
            {**BASE, "allocateLoadBalancerNodePorts": True, "loadBalancerClass": "a"},
            ["spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
             "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"],
        ),
        (
            {**LB, "loadBalancerClass": "/a"},
            ['spec.loadBalancerClass: Invalid value: "/a": prefix part must be non-empty'],
        ),
        (
            {**BASE, "externalTrafficPolicy": "Cluster"},
            ['spec.externalTrafficPolicy: Invalid value: "Cluster": may only be set for externally-accessible '
             "services"],
        ),
        (
            {**LB, "externalTrafficPolicy": "Global", "internalTrafficPolicy": "Global"},
            ['spec.externalTrafficPolicy: Unsupported value: "Global": supported values: "Cluster", "Local"',
             'spec.internalTrafficPolicy: Unsupported value: "Global": supported values: "Cluster", "Local"'],
        ),
        (
            {**LB, "healthCheckNodePort": 31000},
            ["spec.healthCheckNodePort: Invalid value: 31000: may only be set when `type` is 'LoadBalancer' and "
             "`externalTrafficPolicy` is 'Local'"],
        ),
        (
            {**LB, "externalTrafficPolicy": "Local", "healthCheckNodePort": -1},
            ["spec.healthCheckNodePort: Invalid value: -1: must be between 1 and 65535, inclusive"],
        ),
        (
            {**BASE, "trafficDistribution": "Close"},
            ['spec.trafficDistribution: Unsupported value: "Close": supported values: "PreferClose", '
             '"PreferSameNode", "PreferSameZone"'],
        ),
    ],
)  # fmt: skip
def test_errors(spec: dict[str, Any], found: list[str] | None) -> None:
    if found is None:
        (error,) = errors(spec)
        assert error.startswith('spec.selector: Invalid value: "b c": a valid label must be an empty string')
    else:
        assert errors(spec) == found


def test_external_name_must_be_a_name() -> None:
    (error,) = errors({"type": "ExternalName", "externalName": "a_b"})
    assert error.startswith('spec.externalName: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of')


def test_source_ranges_annotation() -> None:
    def annotated(text: str, spec: dict[str, Any]) -> list[str]:
        key = "service.beta.kubernetes.io/load-balancer-source-ranges"
        return errors(spec, metadata={"name": "a", "annotations": {key: text}})

    path = "metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]"
    assert annotated(" 10.0.0.0/8, 192.168.0.0/16 ", LB) == []
    assert annotated("", LB) == []
    assert annotated("10.0.0.0/8", BASE) == [f"{path}: Forbidden: may only be used when `type` is 'LoadBalancer'"]
    assert annotated("10.0.0.0/8,x", LB) == [
        f'{path}: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'
    ]
    assert annotated("x", {**LB, "loadBalancerSourceRanges": ["10.0.0.0/8"]}) == []  # the field wins


def test_ingress() -> None:
    def status(*ingress: dict[str, Any]) -> list[str]:
        return errors(LB, status={"loadBalancer": {"ingress": list(ingress)}})

    assert status({"ip": "192.0.2.1"}, {"hostname": "a.b"}, {"ip": "192.0.2.1", "ipMode": "Proxy"}) == []
    assert status({"ip": "x", "ipMode": "Other"}, {"hostname": "192.0.2.1", "ipMode": "VIP"}) == [
        'status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, '
        "(e.g. 10.9.8.7 or 2001:db8::ffff)",
        'status.loadBalancer.ingress[0].ipMode: Unsupported value: "Other": supported values: "Proxy", "VIP"',
        "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
        'status.loadBalancer.ingress[1].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address',
    ]


def test_a_value_built_by_hand_is_checked_too() -> None:
    legal = convert.convert_service(
        msgspec.convert({"metadata": {"name": "a"}, "spec": LB, "status": None}, structs.WireService)
    )
    broken = msgspec.structs.replace(
        legal, spec=msgspec.structs.replace(legal.spec, ports=(ServicePort(80, protocol=""),), type="")
    )
    assert [error.path for error in validate_service(broken)] == [
        "spec.ports[0].protocol",
        "spec.ports[0].targetPort",
        "spec.type",
        "spec.allocateLoadBalancerNodePorts",
        "spec.externalTrafficPolicy",
    ]
