"""docs/architecture.md names files that are there, and in them the names that it says to look for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text()
WHERE_TO_ADD = TEXT.partition("## Where to add\n")[2].partition("\n## Words\n")[0]
REST = TEXT.replace(WHERE_TO_ADD, "")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|c|sh|md|txt|json|ya?ml|toml|jsx))")


def test_the_files_that_it_names_exist() -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[a-zA-Z_]+)+/?(?:\.py)?)`", REST))
    assert len(named) > 20
    missing = [
        name
        for name in named
        if not any((ROOT / path).exists() for path in (name, f"kproxy/{name}", f"kproxy/{name}.py"))
    ]
    assert missing == []


def lines_of_where_to_add() -> Iterator[tuple[str, dict[str, Path | None], list[str]]]:
    """Each line of a list: its text; the files and folders that it names, None if there is no such; its other names.

    A file is one of the repository, of kproxy/, or of a folder that the same line names before.
    """
    for block in re.split(r"\n(?=- )|\n\n", WHERE_TO_ADD):
        paths: dict[str, Path | None] = {}
        names = []
        for word in () if block.startswith(("```", "#")) else re.findall(r"`([^`\s]+)`", block):
            if FILE.fullmatch(word) and "NAME" not in word and word != "test_matches.py":
                bases = (ROOT, ROOT / "kproxy", *(path for path in paths.values() if path and path.is_dir()))
                paths[word] = next((base / word for base in bases if (base / word).exists()), None)
            elif re.fullmatch(r"[A-Za-z]*_\w+|[A-Z]\w+", word) and word != "NAME":
                names.append(word)
        yield " ".join(block.split()), paths, names


def test_where_to_add_is_short() -> None:
    assert WHERE_TO_ADD.count("\n") < 120


def test_where_to_add_names_files_that_exist() -> None:
    lines = list(lines_of_where_to_add())
    assert sum(len(paths) for _, paths, _ in lines) > 100
    assert [f"{name}: {line}" for line, paths, _ in lines for name, path in paths.items() if path is None] == []


def test_where_to_add_names_what_is_in_these_files() -> None:
    """`PRINTERS`, `_facts`: in one of the files of the same line, of a folder in one of its modules."""
    missing = []
    for line, paths, names in lines_of_where_to_add():
        found = [path for path in paths.values() if path] if names else []
        files = [each for path in found for each in ([path] if path.is_file() else path.glob("*.py"))]
        text = "\n".join(each.read_text() for each in files)
        missing += [f"{name}: {line}" for name in names if files and not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_every_package_is_in_it() -> None:
    packages = {path.parent.name for path in (ROOT / "kproxy").glob("*/__init__.py")}
    assert packages <= set(re.findall(r"^\| `kproxy\.(\w+)`", TEXT, re.MULTILINE))
    assert packages <= set(re.findall(r"^  (\w+)/", TEXT, re.MULTILINE))
