"""What every HTML page of kproxy has around it: it loads nothing, which its own content security policy enforces."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

PALETTE: Final = """
:root{--bg:#fbfbf9;--card:#fff;--ink:#1c2126;--soft:#59636e;--line:#d5dae0;--idle:#c3cad2;--hook:#eef2f7;
--blue:#0b5cad;--ok:#0f7440;--bad:#b3261e;--open:#8a5a00;--okbg:#dff3e6;--badbg:#fbe3e1;--openbg:#fdf0d2;--pod:#e4eefb}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1c2127;--ink:#e7ebef;--soft:#a3adb8;--line:#343c45;
--idle:#46505b;--hook:#252c34;--blue:#7db8f5;--ok:#6fd39a;--bad:#ff9a90;--open:#f2c063;--okbg:#173a26;--badbg:#46211e;
--openbg:#43340f;--pod:#22344a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,"DejaVu Sans",sans-serif}
"""
"""The colours of all pages, by day and by night, and their font."""

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
