"""The tables of docs/apiserver.md, made from the server's own."""

from __future__ import annotations

import textwrap

from kproxy.apiserver.crd.validation import FORMATS, NUMBERS
from kproxy.apiserver.kinds.resources import Resource, built_in
from kproxy.apiserver.kinds.stored import ROWS


def kinds_table() -> str:
    """Every kind that is served: its resource, scope, subresources, and what is said of one that is not enforced."""
    unenforced = {(row.group, row.kind) for row in ROWS if row.unenforced}
    lines = ["| group and version | kind | resource | scope | subresources | |", "|---|---|---|---|---|---|"]
    for each in sorted(built_in(), key=lambda row: (row.group, row.kind)):
        note = "answered" if not each.stored else "not enforced" if (each.group, each.kind) in unenforced else ""
        lines.append(
            f"| {each.api_version} | {each.kind} | {_names(each)} | {'namespace' if each.namespaced else 'cluster'} | "
            f"{', '.join(sub.name for sub in each.subresources)} | {note} |"
        )
    return "\n".join(lines)


def _names(resource: Resource) -> str:
    short = f" ({', '.join(resource.short_names)})" if resource.short_names else ""
    return f"{resource.plural}{short}"


def formats_text() -> str:
    """The formats that schemas of custom resources are held to."""
    texts, numbers = (", ".join(f"`{name}`" for name in names) for names in (FORMATS, NUMBERS))
    return textwrap.fill(f"Texts: {texts}.", 120) + "\n\n" + f"Numbers: {numbers}."
