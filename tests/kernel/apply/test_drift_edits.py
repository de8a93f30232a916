"""200 random edits of kube-proxy's rules: `kproxy drift` names each, `kproxy drift --repair` mends it and nothing else.

Through the command itself, in the kernel, with rules of Docker, a CNI plugin and ufw in all tables of both variants.
The normal suite makes 20 of the edits, the slow one 50 more, of every kind, and the soak the others.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kproxy.cli.main import main
from kproxy.linux.iptables.executor import COMMAND, IptablesExecutor, parse_dump
from kproxy.linux.iptables.ownership import is_owned
from kproxy.netfilter.hooks import Variant
from kproxy.netfilter.text import target_of
from kproxy.services import IPFamily
from tests.support.examples import spread
from tests.support.kernel.drift_edits import KINDS, Edit, Editor, is_edit_of_ours
from tests.support.kernel.namespaces import fresh_namespace, run, split_tables
from tests.support.recorded import CLUSTERS

pytestmark = pytest.mark.root

Report = dict[str, Any]
EDITS = 10
GROUPS = 5
DUAL_STACK = [CLUSTERS[number] for number in (5, 6, 7, 10, 8)]
OTHERS = """\
*mangle
:THEIRS - [0:0]
[1:60] -A FORWARD -j THEIRS
COMMIT
*filter
:CNI-FORWARD - [0:0]
:DOCKER-USER - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:ufw-before-input - [0:0]
[3:180] -A INPUT -j ufw-before-input
[5:400] -A FORWARD -j DOCKER-USER
[6:410] -A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
[7:420] -A FORWARD -i docker0 -j ACCEPT
[8:430] -A OUTPUT -p tcp -m tcp --dport 22 -j ACCEPT
[9:540] -A DOCKER-USER -j RETURN
[10:640] -A KUBE-NWPLCY-DEFAULT -j RETURN
[11:700] -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:CNI-HOSTPORT-DNAT - [0:0]
:DOCKER - [0:0]
:KUBE-HOSTPORTS - [0:0]
[2:120] -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
[3:130] -A PREROUTING -j CNI-HOSTPORT-DNAT
[4:240] -A POSTROUTING ! -o docker0 -j MASQUERADE
[6:360] -A DOCKER -i docker0 -j RETURN
[7:370] -A KUBE-HOSTPORTS -p tcp -m tcp --dport 8080 -j RETURN
COMMIT
"""

COMBINATIONS = [(family, variant) for family in IPFamily for variant in Variant]
groups = pytest.mark.parametrize(
    ("family", "variant", "group"),
    spread([(*combination, group) for combination in COMBINATIONS for group in range(GROUPS)], 0, 2),
)


@groups
def test_each_edit_is_named_and_mended(
    family: IPFamily, variant: Variant, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = DUAL_STACK[group]
    # Every kind of edit has its turn in each combination; what it hits is chance.
    kinds = [list(KINDS)[(group * EDITS + number) % len(KINDS)] for number in range(EDITS)]
    rng = random.Random(f"{family.value} {variant.value} {group}")
    with fresh_namespace() as namespace:
        for each, kind in COMBINATIONS:
            run(f"{COMMAND[each]}-{kind.value}-restore", "--noflush", "--counters", namespace=namespace, text=OTHERS)
        written = record_writes(namespace, monkeypatch)
        arguments = ["-f", f"{case}/cluster.yaml", "--config", f"{case}/config.yaml", "--netns", namespace]
        arguments += ["--variant", variant.value, "-o", "json"]
        assert kproxy("apply", *arguments)[0] == 0
        before = snapshot(namespace)
        command = f"{COMMAND[family]}-{variant.value}-save"
        editor = Editor(parse_dump(run(command, namespace=namespace)), family, rng)
        for kind_of_edit in kinds:
            edit = editor.edit(kind_of_edit)
            where = variant.other if edit.other else variant
            run(f"{COMMAND[family]}-{where.value}-restore", "--noflush", namespace=namespace, text=edit.text)
            written.clear()
            code, report = kproxy("drift", *arguments)
            assert (code, written) == (1, []), edit
            check_named(edit, report, family, where)
            code, mended = kproxy("drift", *arguments, "--repair")
            assert (code, mended["repaired"]) == (0, True), edit
            assert mended["findings"] == report["findings"]
            check_written(edit, report, written, family, where)
            assert snapshot(namespace) == before, edit
            written.clear()
            code, report = kproxy("drift", *arguments)
            assert (code, report["findings"], written) == (0, [], []), edit


def check_named(edit: Edit, report: Report, family: IPFamily, variant: Variant) -> None:
    """Whatever was edited is found, and nothing else."""
    findings = report["findings"]
    assert {(each["family"], each["variant"]) for each in findings} == {(family.value, variant.value)}, edit
    assert {(each["table"], each["chain"]) for each in findings} == {said.place for said in edit.said}, edit
    assert all(each["meaning"] for each in findings)
    for said in edit.said:
        assert any(
            (each["kind"], each["table"], each["chain"]) == (said.kind, *said.place)
            and said.wanted in (None, each.get("wanted", ""))
            and said.found in (None, each.get("found", ""), " ".join(sorted(each.get("found", "").split())))
            for each in findings
        ), (said, findings)


def check_written(
    edit: Edit,
    report: Report,
    written: list[tuple[IPFamily, Variant, str]],
    family: IPFamily,
    variant: Variant,
) -> None:
    """Only what was found was written: chains by their names, built-in chains rule by rule."""
    assert {(each, kind) for each, kind, _ in written} == {(family, variant)}, edit
    chains = {(each["table"], each["chain"]) for each in report["findings"]}
    for each in report["findings"]:
        if each["kind"] == "other-variant":
            chains |= {(each["table"], chain) for chain in each["found"].split()}
    declared, edited = set(), set()
    for _, _, text in written:
        for part in text.split("COMMIT\n")[:-1]:
            table, *lines = part[1:].splitlines()
            assert all(is_edit_of_ours(table, line) for line in lines), (edit, part)
            declared |= {(table, line[1:].split()[0]) for line in lines if line.startswith(":")}
            edited |= {(table, line.split()[1]) for line in lines if not line.startswith((":", "["))}
    assert declared == {place for place in chains if is_owned(*place)}, edit
    if not edit.other:
        assert edited - declared == {(f["table"], f["chain"]) for f in report["findings"] if "jump-" in f["kind"]}, edit


def record_writes(namespace: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[IPFamily, Variant, str]]:
    """Everything that is written into the namespace from now on; the preflight writes into another."""
    written: list[tuple[IPFamily, Variant, str]] = []
    really = IptablesExecutor.restore

    def restore(self: IptablesExecutor, text: str) -> None:
        if namespace in self._namespace.label:
            written.append((self.family, self.variant, text))
        really(self, text)

    monkeypatch.setattr(IptablesExecutor, "restore", restore)
    return written


def snapshot(namespace: str) -> dict[str, object]:
    """All tables of all families and variants, in which counters of others count."""
    found: dict[str, object] = {}
    for family, variant in COMBINATIONS:
        command = f"{COMMAND[family]}-{variant.value}-save"
        text = re.sub(r"^#.*\n", "", run(command, "-c", namespace=namespace), flags=re.MULTILINE)
        tables = split_tables(text)
        found[command] = {
            table: [without_our_counters(table, line) for line in tables[table].splitlines()] for table in tables
        }
    return found


def without_our_counters(table: str, line: str) -> str:
    chain = line.lstrip(":").split()[0] if line.startswith(":") else [*line.split(), "", "", ""][2]
    ours = is_owned(table, chain) or is_owned(table, target_of(line))
    return re.sub(r"\[\d+:\d+\]", "[]", line) if ours else line


def kproxy(*arguments: str) -> tuple[int, Report]:
    """Runs the command in this process; its exit code and its JSON."""
    output, messages = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with streams(output, messages), pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["kproxy", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    output.seek(0)
    printed = output.read()
    assert printed, messages.getvalue()
    return ended.value.code, json.loads(printed)


@contextlib.contextmanager
def streams(output: io.TextIOWrapper, messages: io.StringIO) -> Iterator[None]:
    """Catches what is printed, and brings back the signal handler that the command replaces."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
            yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_there_are_200_edits_of_every_kind() -> None:
    assert len(COMBINATIONS) * GROUPS * EDITS == 200
    assert 2 * len(KINDS) <= GROUPS * EDITS
