"""Rules as text."""

from __future__ import annotations

import pytest

from kproxy.netfilter.text import (
    SaveTextError,
    split_save,
)

HEAD = "*nat\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}[1:2\n-A A -j B\nCOMMIT\n",
        "*nat\n:OUTPUT ACCEPT [0:\nCOMMIT\n",
        f"{HEAD}COMMIT\n-A A -j B\n",
        f"{HEAD}-A B -j A\nCOMMIT\n",
        f"{HEAD}hello\nCOMMIT\n",
    ],
)
def test_a_damaged_dump_is_refused(text: str) -> None:
    with pytest.raises(SaveTextError):
        split_save(text)
