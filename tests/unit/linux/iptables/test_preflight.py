"""Doing without optional features, and the preflight that finds out which are missing."""

from __future__ import annotations

import pytest

from kproxy.linux.errors import (
    FailedLine,
    FeatureMissingError,
    LinuxError,
    LockHeldError,
    RestoreFailedError,
    ToolFailedError,
)
from kproxy.linux.iptables.preflight import (
    BY_NAME,
    FEATURES,
    Preflight,
    UndoingExecutor,
    line_rewriter,
    probe,
    probe_text,
)
from kproxy.linux.sync.iptables.desired import desired_rules
from kproxy.netfilter import parse_restore
from kproxy.netfilter.hooks import Variant
from kproxy.services import IPFamily
from tests.support.linux.fake import MemoryExecutor
from tests.support.recorded import CLUSTERS, render


class Lacking(MemoryExecutor):
    """A kernel that lacks what these words stand for."""

    def __init__(self, *words: str, error: LinuxError | None = None) -> None:
        super().__init__(IPFamily.IPV4, Variant.NFT)
        self._words = words
        self._given = error

    def restore(self, text: str) -> None:
        for number, line in enumerate(text.split("\n"), 1):
            if any(word in line for word in self._words):
                raise self._given or RestoreFailedError("fake", "no such thing", [FailedLine(number, line)], "nat", 0)


WORDS = {
    "table nat": "*nat",
    "table filter": "*filter",
    "table mangle": "*mangle",
    "tcp": "-m tcp --dport",
    "udp": "-m udp",
    "DNAT": "DNAT",
    "MARK": "-j MARK",
    "mark": "-m mark",
    "MASQUERADE": "-j MASQUERADE",
    "random-fully": "--random-fully",
}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproxy.linux.iptables.preflight.SECOND_LOOK", 0.0)


class Failing(MemoryExecutor):
    """iptables that fails so many times, whatever it is given."""

    def __init__(self, times: int) -> None:
        super().__init__(IPFamily.IPV4)
        self._left = times

    def restore(self, text: str) -> None:
        if self._left:
            self._left -= 1
            raise RestoreFailedError("fake", "Resource temporarily unavailable", [], "", 0)


@pytest.mark.parametrize("times", [1, 2, len(FEATURES), len(FEATURES) + 1])
def test_iptables_that_fails_for_a_moment_lacks_nothing(times: int) -> None:
    assert probe(Failing(times), FEATURES) == Preflight({})


def test_iptables_that_fails_with_everything_says_nothing_of_the_host() -> None:
    with pytest.raises(ToolFailedError, match="even with nothing to do: Resource temporarily unavailable"):
        probe(Failing(10**6), FEATURES)


@pytest.mark.parametrize("feature", [feature.name for feature in FEATURES])
def test_each_feature_made_unavailable(feature: str) -> None:
    word = WORDS.get(feature, "-j REJECT" if feature == "REJECT" else f"-m {feature}")
    found = probe(Lacking(word), FEATURES)
    assert feature in found.missing
    if BY_NAME[feature].required:
        with pytest.raises(FeatureMissingError, match=feature):
            found.check()
    else:
        assert set(found.missing) == {feature}
        found.check()
        assert found.losses == {feature: f"{feature} cannot be used here (no such thing): {BY_NAME[feature].loss}"}


@pytest.mark.parametrize("family", list(IPFamily), ids=lambda family: str(family.value))
def test_the_probe_is_restore_input(family: IPFamily) -> None:
    parts = parse_restore(probe_text(FEATURES, family), family=family)
    assert {part.table for part in parts} == {"nat", "filter", "mangle"}


@pytest.mark.parametrize("lacking", ["", "*mangle", "-m recent"])
def test_a_probe_in_a_namespace_in_use_leaves_nothing(lacking: str) -> None:
    class Kernel(MemoryExecutor):
        def restore(self, text: str) -> None:
            for part in text.split("COMMIT\n")[:-1]:  # each table is a transaction
                if lacking and lacking in part:
                    raise RestoreFailedError("fake", "no such thing", [], "", 0)
                super().restore(f"{part}COMMIT\n")
                loaded.append(part)

    loaded: list[str] = []
    kernel = Kernel(IPFamily.IPV4)
    before = "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"
    kernel.restore(before)
    found = probe(UndoingExecutor(kernel), FEATURES)
    assert set(found.missing) == {"": set(), "*mangle": {"table mangle"}, "-m recent": {"recent"}}[lacking]
    assert any("-j DNAT" in part for part in loaded)
    left = [line for line in kernel.save(counters=False).splitlines() if "KUBE" in line]
    assert sorted(left) == sorted(before.splitlines()[1:-1])


def test_a_held_lock_is_no_missing_feature() -> None:
    with pytest.raises(LockHeldError):
        probe(Lacking("nat", error=LockHeldError("held")), FEATURES)


def test_nothing_missing_rewrites_nothing() -> None:
    assert line_rewriter(()) is None
    assert line_rewriter(("nfacct", "random-fully", "table mangle")) is None
    assert Preflight({}).losses == {}


@pytest.mark.parametrize("missing", ["comment", "statistic", "recent", "addrtype", "sctp", "REJECT"])
def test_no_rendered_line_uses_what_is_missing(missing: str) -> None:
    rewrite = line_rewriter((missing,))
    used = {"sctp": "-p sctp", "REJECT": "-j REJECT"}.get(missing, f"-m {missing} ")
    seen = 0
    for case in CLUSTERS[:40]:
        for family in IPFamily:
            rendered = render(case, family)
            seen += rendered.restore_text.count(used)
            wanted = desired_rules(rendered, rewrite)
            assert not any(used in text for text in wanted.chains.values())
            assert not any(used in rule for rules in wanted.jumps.values() for rule in rules)
            for place, origins in wanted.origins().items():
                if place in wanted.chains:
                    assert len(origins) == wanted.chains[place].count("\n")
            for place in wanted.chains:
                wanted.rules(place)
    assert seen
