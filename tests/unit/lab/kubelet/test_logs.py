"""The logs of a node's pods."""

from __future__ import annotations

import threading

from kproxy.lab.kubelet.logs import KEPT, PodLogs


def test_lines_in_order_after_a_number_and_no_more_than_are_kept() -> None:
    logs = PodLogs()
    for number in range(KEPT + 10):
        logs.add("u", f"line {number}")
    lines = logs.lines("u")
    assert (len(lines), lines[0].text, lines[-1].text) == (KEPT, "line 10", f"line {KEPT + 9}")
    assert [line.text for line in logs.wait("u", lines[-3].number, 0.0) or ()] == [lines[-2].text, lines[-1].text]
    assert logs.lines("other") == []


def test_who_follows_gets_what_comes_and_hears_of_the_end() -> None:
    logs = PodLogs()
    logs.add("u", "one")
    last = logs.lines("u")[-1].number
    assert logs.wait("u", last, 0.0) == []
    found: list[object] = []

    def follow() -> None:
        after = last
        while (lines := logs.wait("u", after, 60.0)) is not None:
            found.extend(line.text for line in lines)
            after = lines[-1].number

    thread = threading.Thread(target=follow)
    thread.start()
    logs.add("u", "two")
    while "two" not in found:
        thread.join(0.01)
    logs.forget("u")
    thread.join(60)
    assert (thread.is_alive(), found) == (False, ["two"])
