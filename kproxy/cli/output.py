"""How commands speak: data on stdout or into a file, messages on stderr, files all or nothing."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from kproxy.errors import KproxyError

if TYPE_CHECKING:
    from kproxy.cluster.evidence.unseen import Unseen


API_VERSION: Final = "kproxy/v1"
"""Of every answer: within it, fields are added and none is taken away or means something else."""


class OutputError(KproxyError):
    """Output could not be written."""


output_option = click.option(
    "-o", "--output", "output_format", type=click.Choice(["text", "json", "yaml"]), default="text",
    help="Default: text.",
)  # fmt: skip
"""-o text|json|yaml."""

_FORMATS: Final = frozenset(("json", "yaml", "text", "wide", "name", "save", "restore", "list", "table"))


def check_is_file(context: click.Context, option: click.Parameter, path: str | None) -> str | None:
    """Refuses a format where a file's name is wanted: with -o, kubectl and most of kproxy's commands mean a format.

    Raises:
        click.BadParameter: it is one.
    """
    if path in _FORMATS:
        raise click.BadParameter(
            f"{path!r}: -o names a file here, and --format the format; for a file of that name say -o ./{path}",
            context,
            option,
        )
    return path


def report_usage(error: click.ClickException) -> None:
    """Prints what click says, usage and hint too, with its error as all others are printed."""
    shown = io.StringIO()
    error.show(shown)
    text = shown.getvalue()
    before = text.removesuffix(f"Error: {error.format_message()}\n")
    click.echo(before, err=True, nl=False)
    if before != text:  # a group without a command shows its help alone
        report_error(error.format_message())


def report_error(error: KproxyError | str) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + str(error), err=True, color=_colour(sys.stderr.isatty()))


def report_note(text: str) -> None:
    """Prints a warning or a remark on stderr, once for a command: what two sides of a comparison have is read twice."""
    context = click.get_current_context(silent=True)
    if context is not None:
        said: set[str] = context.find_root().meta.setdefault("kproxy.notes", set())
        if text in said:
            return
        said.add(text)
    for line in folded(f"{click.style('note: ', fg='yellow')}{text}".split("\n"), terminal_width(sys.stderr)):
        click.echo(line, err=True, color=_colour(sys.stderr.isatty()))


def colour_stdout() -> bool:
    """Whether stdout should be coloured: what --color says; else a terminal is, unless NO_COLOR is set."""
    return _colour(sys.stdout.isatty())


_chosen = "auto"


def choose_colour(when: str) -> None:
    """Decides for the rest of the process: `auto`, `always` or `never`."""
    global _chosen
    _chosen = when


def _colour(is_terminal: bool) -> bool:
    if _chosen != "auto":
        return _chosen == "always"
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO | None = None) -> int | None:
    """The columns to fold to: $COLUMNS, else those of the terminal; None if the stream, by default stdout, is not one,
    so that what programs read has one form."""
    columns = os.environ.get("COLUMNS", "")
    said = columns.isdecimal() and int(columns) > 0
    return shutil.get_terminal_size().columns if said or (stream or sys.stdout).isatty() else None


def table_lines(rows: Sequence[Sequence[str]], indent: str = "", width: int | None = None) -> Iterator[str]:
    """Rows of cells, the first the headings, as lines.

    Where the table is wider than `width` columns, each row stands as a block of its own: the first cell, and below it
    the others with their headings.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if width is None or len(indent) + sum(widths) + 2 * (len(widths) - 1) <= width:
        for row in rows:
            cells = [text.ljust(size) for text, size in zip(row, widths, strict=True)]
            yield (indent + "  ".join(cells)).rstrip()
        return
    heads = [head.lower() for head in rows[0]]
    size = max(map(len, heads[1:]), default=0)
    for row in rows[1:]:
        yield f"{indent}{row[0]}"
        for head, text in zip(heads[1:], row[1:], strict=True):
            if text:
                margin = f"{indent}  {head.ljust(size)}  "
                room = max(20, width - len(margin))
                for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False):
                    yield margin + line
                    margin = " " * len(margin)


def report_width() -> int:
    """The columns that a report in prose has: the terminal's, at most 120; as many as it takes where there is none."""
    width = terminal_width()
    return sys.maxsize if width is None else min(width, 120)


def wrapped(text: str, first: str = "", rest: str = "", width: int = 0, *, cut: bool = False) -> Iterator[str]:
    """Prose as lines of `report_width` or so wide: `first` stands before the first, `rest` before the others. `cut`:
    longer words are."""
    yield from textwrap.wrap(
        text, width or report_width(), initial_indent=first, subsequent_indent=rest, break_long_words=cut,
        break_on_hyphens=False,
    )  # fmt: skip


def labelled(
    rows: Iterable[tuple[str, str | Sequence[str]]], margin: str, size: int, *, cut: bool = False
) -> Iterator[str]:
    """Prose beside labels, which have a colour and are `size` wide: each with its text, or before the first of several;
    those without are left out. `cut` as for `wrapped`."""
    for label, texts in rows:
        for text in filter(None, [texts] if isinstance(texts, str) else texts):
            first = f"{margin}{label:<{size}}"
            lines = list(wrapped(text, first, " " * len(first), cut=cut))
            yield lines[0].replace(label, click.style(label, fg="cyan"), 1) if label else lines[0]
            yield from lines[1:]
            label = ""


_MARGIN: Final = re.compile(r"[ │├└─]*")
_NO_TEE: Final = str.maketrans("├└─", "│  ")


class Verbatim(str):
    """A line of a report that is to be copied, as one with a rule is: it is never folded."""


class Branch:
    """A line of a tree, with the rule that it is about, if any, and branches below it."""

    def __init__(self, text: str, rule: str = "") -> None:
        self.text = text
        self.rule = rule
        self.children: list[Branch] = []

    def add(self, text: str, rule: str = "") -> Branch:
        child = Branch(text, rule)
        self.children.append(child)
        return child

    def lines(self, indent: str = "") -> Iterator[str]:
        """What is below it, in lines."""
        for child in self.children:
            last = child is self.children[-1]
            below = indent + ("   " if last else "│  ")
            yield f"{indent}{'└─ ' if last else '├─ '}{child.text}"
            if child.rule:
                yield Verbatim(f"{below}{'│  ' if child.children else '   '}{click.style(child.rule, dim=True)}")
            yield from child.lines(below)


def folded(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Lines that fit so many columns, as far as blanks allow it; the rest stands below, four columns further in, and
    within the lines of a tree. Colours are not counted. Lines stay as they are where there is no terminal (None)."""
    for line in lines:
        if width is None or isinstance(line, Verbatim) or len(click.unstyle(line)) <= width:
            yield line
            continue
        found = _MARGIN.match(click.unstyle(line))
        margin = (found.group() if found is not None else "").translate(_NO_TEE) + "    "
        now, room = "", 0
        for word in re.findall(r" *[^ ]+", line):
            size = len(click.unstyle(word))
            if room > len(margin) and room + size > width:
                yield now
                word = margin + word.lstrip()
                now, room, size = "", 0, len(click.unstyle(word))
            now, room = now + word, room + size
        yield now


def write_output(text: str, path: str | None) -> None:
    """Writes to stdout, or to a file that either appears whole or not at all.

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.
    """
    if path is None or path == "-":
        # One write of bytes: click.echo would scan megabytes of rules for colour codes.
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    else:
        write_files({Path(path): text})


def write_files(texts: Mapping[Path, str], *, mode: int | None = None) -> None:
    """Writes files so that readers see the old or the new content of each, and nothing at all changes if one fails.

    A symbolic link keeps pointing where it does; a device or pipe is written to as it is. `mode`: permissions other
    than those that a file written in place would have.

    Raises:
        OutputError: a file cannot be written.
    """
    staged: dict[Path, str] = {}
    path = Path()
    try:
        for path, text in texts.items():
            if path.exists() and not (path.is_file() or path.is_dir()):
                path.write_text(text, encoding="utf-8", newline="")
                continue
            final = Path(os.path.realpath(path))
            descriptor, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name}.")
            staged[final] = name
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            os.chmod(name, _mode_for(final) if mode is None else mode)
            if path.is_dir():
                raise IsADirectoryError(21, os.strerror(21), str(path))
        for path, name in list(staged.items()):
            os.replace(name, path)
            del staged[path]
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        for name in staged.values():
            with contextlib.suppress(OSError):
                os.unlink(name)


def write_bytes(path: str, data: bytes) -> None:
    """Writes a binary file. Raises OutputError."""
    try:
        Path(path).write_bytes(data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _mode_for(path: Path) -> int:
    """The permissions a file written in place would have."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Shows on a terminal's stderr what takes so long, once it has taken a second; nothing otherwise."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def show() -> None:
        if not done.wait(1):
            line = ProgressLine()
            line.show(f"{what} ...")
            done.wait()
            line.clear()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class ProgressLine:
    """One line on a terminal's stderr that changes, never wider than the terminal; nothing where there is none."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self.is_shown:
            # The last column is the cursor's: a line that fills it is broken by some terminals.
            click.echo(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)

    def clear(self) -> None:
        self.show("")


def answer(kind: str, value: object, unseen: Iterable[Unseen] | None = None) -> dict[str, Any]:
    """A value of ours as what JSON is made of, with apiVersion and kind in front. An answer about a host has `unseen`,
    what was not seen of it, even if that is nothing."""
    import msgspec

    fields = msgspec.to_builtins(value)
    assert isinstance(fields, Mapping)
    assert "kind" not in fields
    found = {"apiVersion": API_VERSION, "kind": kind, **fields}
    if unseen is not None:
        found["unseen"] = msgspec.to_builtins(list(unseen))
    return found


def text_of(value: object, output_format: str, *, indent: int | None = 2) -> str:
    """JSON or YAML of what `answer` made, or of a list; with a newline at the end.

    Rules of others may hold bytes that are no UTF-8, which Python keeps as lone surrogates: they are escaped.
    """
    if output_format == "yaml":
        text = _yaml_text(value)
    else:
        import json

        separators = (",", ":") if indent is None else None
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators) + "\n"
    return text.encode(errors="backslashreplace").decode()


def _yaml_text(value: object) -> str:
    """YAML with the quotes that kubectl's writer chooses: double ones where a text would read as something else."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: Dumper, text: str) -> yaml.ScalarNode:
        tag = "tag:yaml.org,2002:str"
        if "\n" in text:
            return dumper.represent_scalar(tag, text, style="|")
        resolve: Callable[..., object] = dumper.resolve
        reads_otherwise = resolve(yaml.ScalarNode, text, (True, False)) != tag or text.lower() in ("y", "n")
        return dumper.represent_scalar(tag, text, style='"' if reads_otherwise else None)

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=10_000)


def write_answer(kind: str, value: object, output_format: str, unseen: Iterable[Unseen] | None = None) -> None:
    """Writes a value to stdout as indented JSON, or as YAML, with its apiVersion and kind; `unseen` as for `answer`."""
    write_output(text_of(answer(kind, value, unseen), output_format), None)


def write_result(
    kind: str,
    value: object,
    output_format: str,
    lines: Iterable[str],
    unseen: Iterable[Unseen] | None = None,
    *,
    notes: Iterable[str] = (),
    fold: bool = True,
) -> None:
    """Writes an answer: as `write_answer`, or in `text` format its lines, and the notes of it on stderr.

    Args:
        lines: made only if they are written.
        fold: see `write_report`.
    """
    if output_format != "text":
        write_answer(kind, value, output_format, unseen)
        return
    for note in notes:
        report_note(note)
    write_report(lines, fold=fold)


def write_report(lines: Iterable[str], *, fold: bool = True) -> None:
    """Writes what a person asked for to stdout: lines with their colours if it has them, folded to the terminal's width
    unless they are to be copied as they are. Bytes of rules that are no UTF-8 are written as `\\xe9`."""
    text = "".join(f"{line}\n" for line in folded(lines, terminal_width() if fold else None))
    text = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    write_output(text if colour_stdout() else click.unstyle(text), None)
