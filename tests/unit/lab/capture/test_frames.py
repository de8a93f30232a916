"""Captured frames as a file."""

from __future__ import annotations

from pathlib import Path

from kproxy.lab.capture.frames import Frame, pcapng


def test_captures_are_pcapng_that_others_read(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    frames = [Frame(1_700_000_000_123_456_789 + n, f"node-{n % 2}", "eth0", n == 1, bytes(60 + n)) for n in range(3)]
    path = tmp_path / "a.pcap"
    path.write_bytes(pcapng(frames))
    found = rdpcap(str(path))
    assert [bytes(item) for item in found] == [frame.data for frame in frames]
    assert [item.sniffed_on for item in found] == ["node-0:eth0", "node-1:eth0", "node-0:eth0"]
    assert abs(float(found[0].time) - 1_700_000_000.123456789) < 1e-6
