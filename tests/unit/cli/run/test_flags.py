"""Arguments in the forms of pflag, brought into click's."""

from __future__ import annotations

import click
import pytest

from kproxy.agent.config.flags import FLAGS
from kproxy.cli.run.command import command
from kproxy.cli.run.flags import KubeProxyCommand, given_flags


def share_form(*arguments: str) -> list[str]:
    assert isinstance(command, KubeProxyCommand)
    return command.share_form(arguments)


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        (["-v=2"], ["-v", "2"]),
        (["-v", "2"], ["-v", "2"]),
        (["-v2"], ["-v2"]),
        (["--v=2"], ["--v=2"]),
        (["-v="], ["-v", ""]),
        (["--proxy_mode", "iptables"], ["--proxy-mode", "iptables"]),
        (["--cluster_cidr=10.0.0.0/8"], ["--cluster-cidr=10.0.0.0/8"]),
        (["--node", "my_node"], ["--node", "my_node"]),
        (["--node=my_node"], ["--node=my_node"]),
        (["--masquerade-all"], ["--masquerade-all=true"]),
        (["--masquerade-all", "-4"], ["--masquerade-all=true", "-4"]),
        (["--masquerade_all=F"], ["--masquerade-all=F"]),
        (["--once=true"], ["--once"]),
        (["--once", "--once=false"], []),
        (["--init_only=false", "--init-only=1"], ["--init-only"]),
        (["--config="], ["--config="]),
        (["--version"], ["--version=true"]),
        (["--version=raw"], ["--version=raw"]),
        (["--config", "--once"], ["--config", "--once"]),
        (["-f", "--once"], ["-f", "--once"]),
        (["--config"], ["--config"]),
        (["--no_such"], ["--no_such"]),
        (["--", "--proxy_mode"], ["--", "--proxy_mode"]),
        (["-"], ["-"]),
    ],
)
def test_forms(given: list[str], shared: list[str]) -> None:
    assert share_form(*given) == shared


@pytest.mark.parametrize("argument", ["--once=maybe", "--cleanup="])
def test_what_is_refused(argument: str) -> None:
    with pytest.raises(click.UsageError):
        share_form(argument)


def test_flags_by_name() -> None:
    given = {"flag_v": "3", "flag_vmodule": ("a=1", "b=2"), "flag_feature_gates": (), "flag_kubeconfig": None}
    assert given_flags(given) == {"v": "3", "vmodule": "a=1,b=2"}
    assert given_flags({f"flag_{flag.name.replace('-', '_')}": "x" for flag in FLAGS}).keys() == {
        flag.name for flag in FLAGS
    }
