"""What people have of IPVS, as values."""

from __future__ import annotations

import pytest

from kproxy.errors import InputError
from kproxy.netfilter.ipvs.read import Entry, is_connections, is_servers, read_connections, read_servers
from kproxy.netfilter.ipvs.server import UNTOLD, RealServer, VirtualServer

SAVED = """\
-A -t 10.96.0.1:443 -s rr -p 10800
-a -t 10.96.0.1:443 -r 192.168.1.10:6443 -m -w 1
-A -u 10.96.0.10:53 -s mh -b mh-port
-a -u 10.96.0.10:53 -r 10.244.0.2:53 -m -w 1
-a -u 10.96.0.10:53 -r 10.244.0.3:53 -m -w 0
-A --sctp-service [fd00::1]:9 -s lc
-a --sctp-service [fd00::1]:9 -r [fd01::2]:9 -m -w 3
"""

LISTED = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.1:443 rr persistent 10800
  -> 192.168.1.10:6443            Masq    1      2          0
UDP  10.96.0.10:53 mh (mh-port)
  -> 10.244.0.2:53                Masq    1      0          7
  -> 10.244.0.3:53                Masq    0      0          0
SCTP [fd00::1]:9 lc
  -> [fd01::2]:9                  Masq    3      0          0
"""

IN_PROC = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr persistent 2700000 FFFFFFFF
  -> C0A8010A:192B      Masq    1      2          0
UDP  0A60000A:0035 mh
  -> 0AF40002:0035      Masq    1      0          7
SCTP [fd00:0000:0000:0000:0000:0000:0000:0001]:0009 lc
  -> [fd01:0000:0000:0000:0000:0000:0000:0002]:0009      Masq    3      0          0
"""

COUNTED = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.96.0.1:443                       6       60       50     4800     9M
  -> 192.168.1.10:6443                   6       60       50     4800     9M
"""

API = VirtualServer("tcp", "10.96.0.1", 443, "rr", 10800)
DNS = VirtualServer("udp", "10.96.0.10", 53, "mh", 0, ("mh-port",))
SIX = VirtualServer("sctp", "fd00::1", 9, "lc")


def test_saved_commands_are_read_and_written_the_same() -> None:
    found = read_servers(SAVED, "x").servers
    assert list(found) == [API, DNS, SIX]
    assert found[DNS] == [RealServer("10.244.0.2", 53), RealServer("10.244.0.3", 53, 0)]
    lines = [line for server, real in found.items() for line in (server.line, *(each.line(server) for each in real))]
    assert lines == SAVED.splitlines()


def test_a_listing_tells_connections() -> None:
    found = read_servers(LISTED, "x").servers
    assert list(found) == [API, DNS, SIX]
    assert found[API] == [RealServer("192.168.1.10", 6443, 1, "m", 2, 0)]
    assert [each.weight for each in found[DNS]] == [1, 0]


def test_proc_has_hexadecimal_digits_and_does_not_tell_for_how_long_clients_stay() -> None:
    found = read_servers(IN_PROC, "x").servers
    assert list(found) == [
        VirtualServer("tcp", "10.96.0.1", 443, "rr", UNTOLD), VirtualServer("udp", "10.96.0.10", 53, "mh"), SIX
    ]  # fmt: skip
    assert next(iter(found.values())) == [RealServer("192.168.1.10", 6443, 1, "m", 2, 0)]
    assert found[SIX] == [RealServer("fd01::2", 9, 3, "m", 0, 0)]


def test_what_counters_do_not_tell_stays_untold() -> None:
    (server, real), *_ = read_servers(COUNTED, "x").servers.items()
    assert server == VirtualServer("tcp", "10.96.0.1", 443, "", UNTOLD)
    assert real == [RealServer("192.168.1.10", 6443, UNTOLD, "")]


@pytest.mark.parametrize(
    "text",
    [
        "-A -f 7 -s rr\n-a -f 7 -r 10.0.0.1:0 -g -w 1\n-A -t 10.0.0.1:1 -s rr\n",
        "FWM  7 rr\n  -> 10.0.0.1:0 Route 1 0 0\nTCP  10.0.0.1:1 rr\n",
    ],
)
def test_virtual_servers_of_marks_are_counted(text: str) -> None:
    found = read_servers(text, "x")
    assert (found.by_mark, found.servers) == (1, {VirtualServer("tcp", "10.0.0.1", 1): []})


@pytest.mark.parametrize(
    "line",
    ["-A -t 10.96.0.1:https -s rr", "-A -s rr", "-a -t 10.0.0.1:1 -r 10.0.0.2:1 -m", "-> 10.0.0.2:1 Masq 1 0 0", "x"],
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(InputError, match="dump:2: a line of ipvsadm expected, not"):
        read_servers(f"\n{line}\n", "dump")


def test_connections() -> None:
    listed = """
IPVS connection entries
pro expire state       source             virtual            destination
TCP 14:57  ESTABLISHED 10.0.0.9:43614     10.96.0.1:443      192.168.1.10:6443
TCP 179:01 ASSURED     10.0.0.9:0         10.96.0.1:443      192.168.1.10:6443
UDP 00:05  UDP         [fd00::9]:5        [fd00::1]:53       [fd01::2]:53
"""
    proc = """\
Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
TCP 0A000009 AA5E 0A600001 01BB C0A8010A 192B ESTABLISHED     897
TCP 0A000009 0000 0A600001 01BB C0A8010A 192B ASSURED       10741
UDP fd00:0000:0000:0000:0000:0000:0000:0009 0005 fd00:0000:0000:0000:0000:0000:0000:0001 0035 \
fd01:0000:0000:0000:0000:0000:0000:0002 0035 UDP               5
"""
    api, real = ("10.96.0.1", 443), ("192.168.1.10", 6443)
    expected = [
        Entry("tcp", ("10.0.0.9", 43614), api, real, "ESTABLISHED", 897),
        Entry("tcp", ("10.0.0.9", 0), api, real, "ASSURED", 10741),
        Entry("udp", ("fd00::9", 5), ("fd00::1", 53), ("fd01::2", 53), "UDP", 5),
    ]
    assert read_connections(listed, "x") == expected
    assert read_connections(proc, "x") == expected
    with pytest.raises(InputError, match="dump:1: a connection of IPVS expected"):
        read_connections("TCP 00:57 NONE a:1 b:2 c:3", "dump")


def test_texts_are_recognised_by_their_first_line() -> None:
    assert is_servers(f"\n{LISTED}")
    assert is_servers(SAVED)
    assert is_connections("Pro FromIP   FPrt\n")
    assert not is_servers("-A KUBE-SERVICES -j RETURN")
    assert not is_connections(LISTED)
