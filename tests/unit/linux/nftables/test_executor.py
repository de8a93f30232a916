"""nft's complaints, as version 1.0.6 words them, turned into lines of the script."""

from __future__ import annotations

from kproxy.linux.nftables.executor import script_error

SCRIPT = (
    "add table ip kube-proxy\nadd chain ip kube-proxy a\nadd rule ip kube-proxy b drop\nadd rule ip kube-proxy c foo\n"
)


def test_lines_that_nft_names() -> None:
    complaint = (
        "/dev/stdin:4:26-28: Error: No symbol type information\nadd rule ip kube-proxy c foo\n    ^^^\n"
        "/dev/stdin:3:24-24: Error: Could not process rule: No such file or directory\nadd rule ip kube-proxy b drop\n"
    )
    error = script_error(complaint, SCRIPT, "ip kube-proxy")
    assert [(line.number, line.text) for line in error.lines] == [
        (3, "add rule ip kube-proxy b drop"),
        (4, "add rule ip kube-proxy c foo"),
    ]
    assert error.reason == "No symbol type information; Could not process rule: No such file or directory"
    assert str(error).startswith("nft -f failed in table ip kube-proxy: No symbol type information;")
    assert error.committed == 0


def test_a_message_without_a_place() -> None:
    error = script_error("Error: Could not receive tables from kernel: Protocol error\n", SCRIPT, "ip kube-proxy")
    assert (error.lines, error.reason) == ((), "Could not receive tables from kernel: Protocol error")
    assert script_error("", SCRIPT, "").reason == "no reason given"


def test_a_place_outside_the_script() -> None:
    assert script_error("/dev/stdin:99:1-2: Error: odd\n", SCRIPT, "").lines == ()
