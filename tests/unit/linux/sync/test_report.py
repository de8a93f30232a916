"""Reports: what a difference means for each Service."""

from __future__ import annotations

from kproxy.linux.iptables.dump import parse_dump
from kproxy.linux.sync.desired import desired_rules
from kproxy.linux.sync.difference import find_difference
from kproxy.linux.sync.report import Stopwatch, service_changes
from kproxy.services import IPFamily
from tests.support.recorded import CLUSTERS, MINIKUBE, render


def test_added_changed_and_removed() -> None:
    mini, other = render(MINIKUBE, IPFamily.IPV4), render(CLUSTERS[0], IPFamily.IPV4)
    dump = parse_dump(mini.save_text)
    wanted = desired_rules(other)
    changes = service_changes(wanted, dump, find_difference(wanted, dump))
    by_name = {change.service: change for change in changes}
    assert list(by_name) == sorted(by_name)
    assert by_name["default/crd-array-watcher"].change == "removed"
    assert by_name["default/crd-array-watcher"].chains_deleted == 3
    assert by_name["default/svc-1"].change == "added"
    nothing = find_difference(desired_rules(mini), dump)
    assert not nothing
    assert service_changes(desired_rules(mini), dump, nothing) == ()


def test_one_altered_rule() -> None:
    mini = render(MINIKUBE, IPFamily.IPV4)
    text = mini.save_text.replace("--to-destination 10.244.0.36:8080", "--to-destination 10.244.0.99:8080")
    wanted, dump = desired_rules(mini), parse_dump(text)
    (change,) = service_changes(wanted, dump, find_difference(wanted, dump))
    assert (change.service, change.change) == ("default/crd-array-watchers", "changed")
    assert (change.chains_written, change.rules_added, change.rules_removed) == (1, 1, 1)


def test_a_stopwatch_counts_steps_that_fail_too() -> None:
    watch = Stopwatch()
    try:
        with watch.step("a"):
            raise ValueError
    except ValueError:
        pass
    assert [step.step for step in watch.times] == ["a"]
