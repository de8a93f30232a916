"""docs/apiserver.md lists what the server's own tables hold."""

from __future__ import annotations

import pytest

from tests.support.apiserver.describe import formats_text, kinds_table
from tests.support.paths import ROOT


@pytest.mark.parametrize(("name", "text"), [("kinds", kinds_table()), ("formats", formats_text())])
def test_the_tables_are_the_servers(name: str, text: str) -> None:
    page = (ROOT / "docs" / "apiserver.md").read_text()
    _, _, rest = page.partition(f"<!-- {name} -->\n")
    found = rest.partition(f"\n<!-- end of {name} -->")[0]
    assert found == text, f"between the marks of {name} docs/apiserver.md must say:\n{text}"
