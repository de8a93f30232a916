"""NetworkPolicies are refused as kube-apiserver refuses them (pkg/apis/networking/validation/validation_test.go)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.server import Api

PATH = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies?dryRun=All"


def _post(api: Api, spec: Any) -> tuple[int, Any]:
    return api("POST", PATH, {"metadata": {"name": "p"}, "spec": {"podSelector": {}, **spec}})


def _port(**fields: Any) -> Any:
    return {"ingress": [{"ports": [fields]}]}


def _peer(**fields: Any) -> Any:
    return {"egress": [{"to": [fields]}]}


GOOD = [
    _port(port=80, endPort=80),
    _port(port="http"),
    _port(port=1, endPort=65535, protocol="SCTP"),
    _peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.0.0/24"]}),
    _peer(ipBlock={"cidr": "fd00::/8", "except": ["fd00:1::/32"]}),
    _peer(podSelector={}, namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
    {"policyTypes": ["Egress"]},
    {"ingress": [{}]},
]
SUBSET = "must be a strict subset of `cidr`"
BAD = [
    (_port(port=0), "spec.ingress[0].ports[0].port", "Invalid value: 0: must be between 1 and 65535, inclusive"),
    (_port(port=80, endPort=79), "spec.ingress[0].ports[0].endPort",
     "Invalid value: 80: must be greater than or equal to `port`"),
    (_port(port=80, endPort=65536), "spec.ingress[0].ports[0].endPort",
     "Invalid value: 65536: must be between 1 and 65535, inclusive"),
    (_port(port="http", endPort=90), "spec.ingress[0].ports[0].endPort",
     "Invalid value: 90: may not be specified when `port` is non-numeric"),
    (_port(endPort=90), "spec.ingress[0].ports[0].endPort",
     "Invalid value: 90: may not be specified when `port` is not specified"),
    (_port(port="a_b"), "spec.ingress[0].ports[0].port",
     'Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)'),
    (_port(port=1, protocol="ICMP"), "spec.ingress[0].ports[0].protocol",
     'Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'),
    (_peer(), "spec.egress[0].to[0]", "Required value: must specify a peer"),
    (_peer(ipBlock={"cidr": ""}), "spec.egress[0].to[0].ipBlock.cidr", "Required value"),
    (_peer(ipBlock={"cidr": "10.0.0.1"}), "spec.egress[0].to[0].ipBlock.cidr",
     'Invalid value: "10.0.0.1": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'),
    (_peer(ipBlock={"cidr": "10.0.0.0/8"}, podSelector={}), "spec.egress[0].to[0]",
     "Forbidden: may not specify both ipBlock and another peer"),
    (_peer(ipBlock={"cidr": "10.0.0.0/8"}, namespaceSelector={}), "spec.egress[0].to[0]",
     "Forbidden: may not specify both ipBlock and another peer"),
    (_peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}), "spec.egress[0].to[0].ipBlock.except[0]",
     f'Invalid value: "11.0.0.0/16": {SUBSET}'),
    (_peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}), "spec.egress[0].to[0].ipBlock.except[0]",
     f'Invalid value: "10.0.0.0/8": {SUBSET}'),
    (_peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["10.0.0.0/7"]}), "spec.egress[0].to[0].ipBlock.except[0]",
     f'Invalid value: "10.0.0.0/7": {SUBSET}'),
    (_peer(ipBlock={"cidr": "10.0.0.0/8", "except": ["fd00::/64"]}), "spec.egress[0].to[0].ipBlock.except[0]",
     f'Invalid value: "fd00::/64": {SUBSET}'),
    (_peer(podSelector={"matchLabels": {"a b": "c"}}), "spec.egress[0].to[0].podSelector.matchLabels", None),
    (_peer(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
     "spec.egress[0].to[0].namespaceSelector.matchExpressions[0].values",
     "Required value: must be specified when `operator` is 'In' or 'NotIn'"),
    (_peer(podSelector={"matchExpressions": [{"key": "a/b/c", "operator": "Exists"}]}),
     "spec.egress[0].to[0].podSelector.matchExpressions[0].key", None),
    (_peer(podSelector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["x y"]}]}),
     "spec.egress[0].to[0].podSelector.matchExpressions[0].values[0]", None),
    (_peer(podSelector={"matchExpressions": [{"key": "a", "operator": "Like"}]}),
     "spec.egress[0].to[0].podSelector.matchExpressions[0].operator",
     'Invalid value: "Like": not a valid selector operator'),
    ({"policyTypes": ["Sideways"]}, "spec.policyTypes[0]",
     'Unsupported value: "Sideways": supported values: "Egress", "Ingress"'),
    ({"policyTypes": ["Ingress", "Egress", "Ingress"]}, "spec.policyTypes",
     'Invalid value: ["Ingress","Egress","Ingress"]: may not specify more than two policyTypes'),
]  # fmt: skip


@pytest.mark.parametrize("spec", GOOD)
def test_good(shared: Api, spec: Any) -> None:
    status, answer = _post(shared, spec)
    assert status == 201, answer


@pytest.mark.parametrize(("spec", "field", "message"), BAD)
def test_bad(shared: Api, spec: Any, field: str, message: str | None) -> None:
    status, answer = _post(shared, spec)
    assert status == 422, answer
    causes = {cause["field"]: cause["message"] for cause in answer["details"]["causes"]}
    assert field in causes
    assert message is None or causes[field] == message
