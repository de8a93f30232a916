"""Whether this machine can run a lab is said before anything is made."""

from __future__ import annotations

import pytest

from kproxy.lab.errors import LabError
from kproxy.lab.lifecycle import up
from kproxy.lab.spec import LabSpec
from kproxy.linux.nftables.binary import Nft


@pytest.mark.root
def test_an_nft_that_is_too_old_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    up.check_machine(LabSpec("one", mode="nftables"))
    monkeypatch.setattr(up, "find_nft", lambda: Nft("nft", (0, 9, 8)))
    up.check_machine(LabSpec("one"))
    with pytest.raises(LabError, match=r"nft 0\.9\.8 is too old: 1\.0\.1 or later is needed"):
        up.check_machine(LabSpec("one", mode="nftables"))
