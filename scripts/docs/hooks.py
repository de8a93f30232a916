"""What MkDocs does beyond docs/: pages with every command's options, the archive of examples, links out of docs/.

The pages are made of the texts that `--help` prints, so they are never stale.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

from kproxy.cli.help import contexts
from kproxy.cli.main import COMMANDS, group

ROOT = Path(__file__).parents[2]
OPTIONS = "Options of every command"
DECISIONS = "Decisions"
WIDTH = 100
# Pages outside of docs/ that the site has as well: where they are, and what they are called in it.
OUTSIDE = {"deploy/README.md": "deploy.md"}


def on_config(config: Any) -> None:
    """Fills the navigation's lists of commands and of decisions."""
    lists: dict[str, list[Any]] = {
        OPTIONS: [{f"kproxy {name}": f"options/{name}.md"} for name in COMMANDS],
        DECISIONS: [f"decisions/{path.name}" for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))],
    }
    for section in config.nav:
        for items in section.values():
            for item in items if isinstance(items, list) else []:
                item.update({name: pages for name, pages in lists.items() if name in item})


def on_files(files: Any, config: Any) -> None:
    """Adds what is made here."""
    for name in COMMANDS:
        files.append(File.generated(config, f"options/{name}.md", content=options_page(name)))
    files.append(File.generated(config, "examples.zip", content=examples_archive()))
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))


_CODE = re.compile(r"`[^`\n]+`")


def with_plain_bars(markdown: str) -> str:
    """Bars of code in tables: GitHub wants them escaped, and here the backslash would be shown."""
    lines = markdown.split("\n")
    return "\n".join(
        _CODE.sub(lambda found: found[0].replace("\\|", "|"), line) if line.startswith("|") else line for line in lines
    )


_LINK = re.compile(r"\[[\w/.-]+\.md\]\(((?:\.\./)*[\w/-]+\.md)(#[\w-]*)?\)")
"""A link whose text is a file's name."""


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Mends what GitHub shows and MkDocs does not: lists, links to pages outside of docs/ that the site has too, and
    links that are called as the file: on the site pages have titles."""
    source = page.file.src_uri
    markdown = with_plain_bars(with_lists_apart(markdown))

    def titled(found: re.Match[str]) -> str:
        file = files.get_file_from_path(posixpath.normpath(posixpath.join(posixpath.dirname(source), found[1])))
        title = file.page.title if file is not None and file.page is not None else None
        return f"[{title}]({found[1]}{found[2] or ''})" if title else found[0]

    markdown = _LINK.sub(titled, markdown)
    if source in OUTSIDE.values():
        return re.sub(r"\]\((?:\.\./)+docs/", "](", markdown)
    for path, name in OUTSIDE.items():
        up = "../" * source.count("/")
        markdown = markdown.replace(f"](../{up}{path}", f"]({up}{name}")
    return markdown


_BLOCK_OR_CODE = re.compile(r"<pre\b.*?</pre>|<code>[^<]*</code>", re.DOTALL)
_HYPHENATED = re.compile(r"(?<!\S)(?=\S{1,40}(?!\S))[^\s-]*-\S*")


def on_page_content(html: str, **_: Any) -> str:
    """Marks the words with hyphens in inline code, which browsers break after a hyphen: the style sheet keeps
    `--assume-endpoints` whole. Longer ones than 40 characters may break, for narrow screens."""

    def marked(found: re.Match[str]) -> str:
        code = found[0].removeprefix("<code>").removesuffix("</code>")
        return "<code>" + _HYPHENATED.sub(r'<span class="word">\g<0></span>', code) + "</code>"

    return _BLOCK_OR_CODE.sub(lambda found: found[0] if found[0].startswith("<pre") else marked(found), html)


def with_lists_apart(markdown: str) -> str:
    """With an empty line before each list, which MkDocs' Markdown wants and GitHub's does not."""
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        fenced ^= line.lstrip().startswith("```")
        begins = re.match(r"(-|\d+\.) ", line) and not fenced
        if begins and lines and lines[-1] and not lines[-1].startswith(" ") and not re.match(r"(-|\d+\.) ", lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def options_page(name: str) -> str:
    """`kproxy NAME --help` and that of its subcommands, as a page."""
    parent = click.Context(group, info_name="kproxy", terminal_width=WIDTH)
    command = group.get_command(parent, name)
    assert command is not None, name
    parts = [f"# kproxy {name}", ""]
    for context in contexts(click.Context(command, parent, info_name=name)):
        if context.parent is not parent:
            parts += [f"## {context.command_path}", ""]
        parts += ["```text", context.get_help(), "```", ""]
    return "\n".join(parts)


def examples_archive() -> bytes:
    """docs/examples as an archive whose bytes depend on the files alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((ROOT / "docs" / "examples").rglob("*")):
            if path.is_file():
                name = path.relative_to(ROOT / "docs").as_posix()
                archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
