"""Noticing what others wrote, cheaply."""

from __future__ import annotations

from kproxy.agent.proxy.canary import KernelWatch, text_fingerprint
from kproxy.linux.errors import ToolFailedError


def test_quiet_only_after_the_rules_were_seen_to_be_right() -> None:
    generation = [1]
    watch = KernelWatch(lambda: generation[0])
    assert watch.suspicious()
    watch.was_right(watch.before_reading())
    assert not watch.suspicious()
    generation[0] += 1
    assert watch.suspicious()


def test_a_change_while_the_rules_are_read_counts() -> None:
    generation = [1]
    watch = KernelWatch(lambda: generation[0])
    taken = watch.before_reading()
    generation[0] += 1
    watch.was_right(taken)
    assert watch.suspicious()


def test_our_own_writes_make_it_look_again() -> None:
    watch = KernelWatch(lambda: 1)
    watch.was_right(watch.before_reading())
    watch.written()
    assert watch.suspicious()


def test_an_unknown_fingerprint_is_suspicious() -> None:
    watch = KernelWatch(lambda: None)
    watch.was_right(watch.before_reading())
    assert watch.suspicious()


def test_the_text_counts_but_for_its_comments() -> None:
    texts = ["# Generated at 10:00\n*nat\n:A - [0:0]\nCOMMIT\n"]
    fingerprint = text_fingerprint(lambda: texts[0])
    first = fingerprint()
    texts[0] = texts[0].replace("10:00", "10:01")
    assert fingerprint() == first
    texts[0] = texts[0].replace(":A", ":B")
    assert fingerprint() != first

    def fail() -> str:
        raise ToolFailedError("no")

    assert text_fingerprint(fail)() is None
