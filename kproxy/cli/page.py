"""What every HTML page of kproxy has around it: it loads nothing, which its own content security policy enforces."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(title: str, style: str, script: str, header: Iterable[str], main: Iterable[str]) -> str:
    """A self-contained page.

    Args:
        title: plain text; everything else is HTML, style sheet or script already.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        "<header>",
        *header,
        "</header>",
        "<main>",
        *main,
        "</main>",
        f"<script>{script}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"
