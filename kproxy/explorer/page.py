"""The built page as one file: style, script and data inline, allowed by their hashes; nothing is loaded or asked.

`kproxy explore --export` and the `--html` of other commands are made of it: each gives the answers that the page shows,
and the view to open. Without scripts it shows a text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib import resources

import msgspec

from kproxy.explorer.errors import Refusal, not_found


def encode(value: object) -> bytes:
    """JSON. Rules of others may hold bytes that are no UTF-8, kept as lone surrogates: they are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode(errors="backslashreplace").replace(b"\\udc", b"\\\\udc")


def static_file(name: str) -> bytes:
    """A file of the built page. Raises Refusal: there is none of that name."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", name):
        found = resources.files("kproxy.explorer").joinpath("static", name)
        if found.is_file():
            return found.read_bytes()
    raise not_found("there is no such file")


def page_with(data: object, title: str = "kproxy explore", text: str = "") -> str:
    """The built page with everything inline.

    Args:
        data: what it shows, by the names of the endpoints that answer it.
        title: the window's.
        text: what is shown where scripts do not run, in lines.

    Raises:
        Refusal: the page is not built.
    """
    style, script = static_file("app.css").decode(), static_file("app.js").decode()
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    style = style.replace("</style", "<\\/style")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "<!--kproxy:csp-->": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "<!--kproxy:title-->": _escaped(title),
        "/*kproxy:css*/": style,
        "<!--kproxy:text-->": f"<pre>{_escaped(text)}</pre>" if text else "",
        "/*kproxy:data*/": _json(data),
        "/*kproxy:js*/": script,
    }
    rest, done = static_file("export.html").decode(), ""
    for marker, part in parts.items():
        before, found, rest = rest.partition(marker)
        if not found:
            raise Refusal(500, f"export.html: {marker} expected")
        done += before + part
    return done + rest


def _json(data: object) -> str:
    """JSON of which nothing ends the element that it stands in."""
    safe = encode(data).decode()
    for letter in "<>\u2028\u2029":
        safe = safe.replace(letter, f"\\u{ord(letter):04x}")
    return safe


def _escaped(text: str) -> str:
    return escape(text.encode(errors="backslashreplace").decode())


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
