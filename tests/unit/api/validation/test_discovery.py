"""The API server's checks of EndpointSlices and Endpoints, message by message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kproxy.api.types.discovery import EndpointSlice
from kproxy.api.validation.discovery import unusable_ports, validate_endpoint_slice, validate_endpoints
from kproxy.api.wire import convert, structs

VALID_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def build(**fields: Any) -> EndpointSlice:
    value = {"metadata": {"name": "es"}, "addressType": "IPv4", **fields}
    return convert.convert_endpoint_slice(msgspec.convert(value, structs.WireEndpointSlice))


def errors(**fields: Any) -> list[str]:
    return [str(error) for error in validate_endpoint_slice(build(**fields))]


def test_recorded_answer_of_a_v1_36_2_api_server() -> None:
    fields: dict[str, Any] = {
        "endpoints": [{"addresses": ["fd00::1"]}, {"addresses": []}],
        "ports": [{"port": 99999}, {"name": "UPPER", "port": 1}],
    }
    assert errors(**fields) == [
        'ports[1].name: Invalid value: "UPPER": a lowercase RFC 1123 label must consist of lower case alphanumeric '
        "characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
        "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        'endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address',
        "endpoints[1].addresses: Required value: must contain at least 1 address",
    ]
    assert [str(error) for error in unusable_ports(build(**fields))] == [
        "ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive"
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"endpoints": None, "ports": None},
        {"addressType": "IPv6", "endpoints": [{"addresses": ["FD00::1"], "hostname": "a", "nodeName": "a.b"}]},
        {"addressType": "FQDN", "endpoints": [{"addresses": ["example.com"]}]},
        {"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "Zone_1"}], "forNodes": []}}]},
        {"endpoints": [{"addresses": [f"10.0.0.{n}" for n in range(100)]}]},
        {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1000},
        {"ports": [{"port": None}, {"name": "a", "appProtocol": "x/y"}]},
        {"endpoints": [{"addresses": ["010.0.0.1"]}]},
    ],
)
def test_legal(fields: dict[str, Any]) -> None:
    assert errors(**fields) == []
    assert unusable_ports(build(**fields)) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"addressType": None}, ["addressType: Required value"]),
        (
            {"addressType": "IPv5", "endpoints": [{"addresses": ["anything"]}]},
            ['addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6"'],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0"]}]},
            [f'endpoints[1].addresses[0]: Invalid value: "10.0.0": {VALID_IP}'],
        ),
        ({"endpoints": [{"addresses": [None]}]}, [f'endpoints[0].addresses[0]: Invalid value: "": {VALID_IP}']),
        (
            {"endpoints": [{"addresses": ["127.0.0.1"]}, {"addresses": ["0.0.0.0"]}]},
            [
                'endpoints[0].addresses[0]: Invalid value: "127.0.0.1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)",
                'endpoints[1].addresses[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)',
            ],
        ),
        (
            {"addressType": "IPv6", "endpoints": [{"addresses": ["10.0.0.1", "fe80::1"]}]},
            [
                'endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address',
                'endpoints[0].addresses[1]: Invalid value: "fe80::1": '
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
            ],
        ),
        (
            {"addressType": "FQDN", "endpoints": [{"addresses": ["example", ""]}]},
            [
                'endpoints[0].addresses[0]: Invalid value: "example": '
                "should be a domain with at least two segments separated by dots",
                "endpoints[0].addresses[1]: Required value",
            ],
        ),
        (
            {"endpoints": [{"addresses": [f"10.0.0.{n}" for n in range(101)]}]},
            ["endpoints[0].addresses: Too many: 101: must have at most 100 items"],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"]}] * 1001},
            ["endpoints: Too many: 1001: must have at most 1000 items"],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "hostname": "a.b"}]},
            ['endpoints[0].hostname: Invalid value: "a.b": must not contain dots'],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "a" * 254}]},
            [f'endpoints[0].nodeName: Invalid value: "{"a" * 199}...: must be no more than 253 bytes'],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}] * 9}}]},
            ["endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forNodes": [{"name": "a"}, {"name": "a"}]}}]},
            ['endpoints[0].hints.forNodes[1].name: Duplicate value: "a"'],
        ),
        (
            {"endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a" * 64}]}}]},
            [f'endpoints[0].hints.forZones[0].name: Invalid value: "{"a" * 64}": must be no more than 63 bytes'],
        ),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, ['ports[1].name: Duplicate value: "a"']),
        (
            {"ports": [{"protocol": "ICMP"}]},
            ['ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"'],
        ),
        (
            {"ports": [{"appProtocol": "/a"}]},
            ['ports[0].appProtocol: Invalid value: "/a": prefix part must be non-empty'],
        ),
        ({"ports": [{}] * 20001}, ["ports: Too many: 20001: must have at most 20000 items"]),
        ({"metadata": None}, ["metadata.name: Required value: name or generateName is required"]),
    ],
)
def test_errors(fields: dict[str, Any], found: list[str]) -> None:
    assert errors(**fields) == found


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_unusable_ports(port: int) -> None:
    assert [error.path for error in unusable_ports(build(ports=[{"port": 1}, {"name": "b", "port": port}]))] == [
        "ports[1].port"
    ]


def endpoints_errors(*subsets: dict[str, Any]) -> list[str]:
    value = {"metadata": {"name": "a"}, "subsets": list(subsets)}
    found = convert.convert_endpoints(msgspec.convert(value, structs.WireEndpoints))
    return [str(error) for error in validate_endpoints(found)]


def test_endpoints() -> None:
    assert endpoints_errors() == []
    assert endpoints_errors({"addresses": [{"ip": "10.0.0.1"}]}) == []
    assert endpoints_errors({"notReadyAddresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}) == []


@pytest.mark.parametrize(
    ("subset", "found"),
    [
        ({}, ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
        ({"addresses": [{"ip": "x"}]}, [f'subsets[0].addresses[0].ip: Invalid value: "x": {VALID_IP}']),
        (
            {"notReadyAddresses": [{"ip": "::1"}]},
            [
                'subsets[0].notReadyAddresses[0].ip: Invalid value: "::1": '
                "may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
        ),
        (
            {"addresses": [{"ip": "127.0.0.1", "hostname": "a.b"}]},
            ['subsets[0].addresses[0].hostname: Invalid value: "a.b": must not contain dots'],
        ),
        (
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}, {"port": 0, "name": "a.b", "protocol": "X"}]},
            [
                "subsets[0].ports[0].name: Required value",
                'subsets[0].ports[1].name: Invalid value: "a.b": must not contain dots',
                "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                'subsets[0].ports[1].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
            ],
        ),
        (
            {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80, "appProtocol": "/a"}]},
            ['subsets[0].ports[0].appProtocol: Invalid value: "/a": prefix part must be non-empty'],
        ),
    ],
)
def test_endpoints_errors(subset: dict[str, Any], found: list[str]) -> None:
    assert endpoints_errors(subset) == found


def test_endpoints_node_name() -> None:
    (error,) = endpoints_errors({"addresses": [{"ip": "10.0.0.1", "nodeName": "A"}]})
    assert error.startswith('subsets[0].addresses[0].nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain')
