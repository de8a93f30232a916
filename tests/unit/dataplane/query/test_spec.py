"""Questions: the mapping that describes a packet, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproxy.dataplane import Host, parse_endpoint
from kproxy.dataplane.query.spec import PacketError, read_question, write_question

ADDRESSES = {4: ("10.244.0.9", "10.96.0.10"), 6: ("fd00::9", "fd00:10:96::a")}


@st.composite
def questions(draw: st.DrawFn) -> dict[str, object]:
    src, dst = ADDRESSES[draw(st.sampled_from((4, 6)))]
    proto = draw(st.sampled_from(("tcp", "udp", "sctp", "icmp", "gre", 200)))
    form = "[{}]:{}" if ":" in src else "{}:{}"
    if proto in ("tcp", "udp", "sctp"):
        dst = form.format(dst, draw(st.integers(0, 65535)))
        src = draw(st.sampled_from((src, form.format(src, 40000))))
    local = draw(st.booleans())
    optional = {
        "src": st.just(src),
        "mark": st.sampled_from((0, "0x4000", "0x4000/0x4000", "open")),
        "ctstate": st.sampled_from(("NEW", "ESTABLISHED", "ESTABLISHED,DNAT", "open", "DNAT", ["RELATED", "SNAT"])),
        "recent": st.just(["KUBE-SEP-X"]),
        "ttl": st.integers(0, 255),
        "length": st.integers(0, 65535),
        "name": st.text(max_size=5),
        "tcpFlags": st.sampled_from(("SYN,ACK", "NONE", "SYN,ECE,CWR")) if proto == "tcp" else st.none(),
        "icmpType": st.integers(0, 255) if proto == "icmp" else st.none(),
        "origin": st.just("local" if local else "arriving"),
        "in": st.none() if local else st.just("eth0"),
    }
    chosen = {name: draw(value) for name, value in optional.items() if name == "origin" or draw(st.booleans())}
    return {"dst": dst, "proto": proto, **chosen}


@given(questions())
def test_what_is_written_is_read_again(fields: dict[str, object]) -> None:
    question = read_question(fields)
    assert read_question(write_question(question)) == question


def test_recent_lists_hold_the_sender() -> None:
    question = read_question({"src": "10.0.0.1", "dst": "10.0.0.2:80", "recent": ["A"]})
    host = question.on(Host.simple())
    assert host.recent is not None
    assert list(host.recent["A"]) == [parse_endpoint("10.0.0.1")[1]]
    assert question.on(Host.simple()).local_addresses is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("src", "10.0.0.1:x"),
        ("dst", None),
        ("proto", 0),
        ("proto", "all"),
        ("proto", "nope"),
        ("in", "a b"),
        ("mark", 1 << 32),
        ("mark", "0x1/x"),
        ("ctstate", "NEW,INVALID"),
        ("ctstate", ["x"]),
        ("ctstate", 3),
        ("ttl", 256),
        ("fragment", "yes"),
        ("icmpCode", -1),
        ("name", 3),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(PacketError) as caught:
        read_question({"src": "10.0.0.1", "dst": "10.0.0.2:80", field: value})
    assert caught.value.field == field
