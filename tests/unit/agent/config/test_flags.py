"""How the values of kube-proxy's flags are written."""

from __future__ import annotations

import pytest

from kproxy.agent.config.flags import BY_NAME, FLAGS, parse_value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("v", "4", 4),
        ("oom-score-adj", "-998", -998),
        ("kube-api-qps", "2.5", 2.5),
        ("masquerade-all", "T", True),
        ("masquerade-all", "0", False),
        ("nodeport-addresses", " 10.0.0.0/8,,fd00::/8 ", ["10.0.0.0/8", "fd00::/8"]),
        ("nodeport-addresses", "", []),
        ("feature-gates", "A=true, B=false", {"A": True, "B": False}),
        ("vmodule", "proxier*=4,", [{"filePattern": "proxier*", "verbosity": 4}]),
        ("iptables-sync-period", "5s", "5s"),
        ("kubeconfig", "", ""),
    ],
)
def test_values(name: str, text: str, value: object) -> None:
    assert parse_value(BY_NAME[name], text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("v", "x"),
        ("v", ""),
        ("kube-api-qps", "fast"),
        ("masquerade-all", "yes"),
        ("masquerade-all", ""),
        ("feature-gates", "A"),
        ("feature-gates", "A=maybe"),
        ("vmodule", "a"),
        ("vmodule", "=3"),
        ("vmodule", "a=-1"),
        ("vmodule", "a=3=4"),
    ],
)
def test_values_that_are_none(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"'.*'"):
        parse_value(BY_NAME[name], text)


def test_the_table() -> None:
    assert len({flag.name for flag in FLAGS}) == len(FLAGS)
    assert [flag.name for flag in FLAGS] == sorted(flag.name for flag in FLAGS)
    fields = [flag.field for flag in FLAGS if flag.field]
    assert len(set(fields)) == len(fields)
    assert all(bool(flag.help) != bool(flag.no_effect) for flag in FLAGS), "either it counts, or it says why not"
