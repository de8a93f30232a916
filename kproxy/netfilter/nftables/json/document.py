"""Reading `nft -j list ruleset`: JSON into the words of a script, which the reader of scripts then reads.

nft's JSON and its language say the same in other punctuation, and what a constant means depends in both on the
expression beside it. So each object becomes one command, and there is one reader for both. What nft has no JSON for (in
1.0.6: comments of tables and chains, devices of ingress chains, `typeof`, `auto-merge`) is not in the rule set.
Statements that kproxy does not know stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kproxy.netfilter.nftables.errors import NftSyntaxError
from kproxy.netfilter.nftables.json.commands import COMMANDS
from kproxy.netfilter.nftables.json.expressions import EXPRESSIONS
from kproxy.netfilter.nftables.json.fields import MalformedError, UnknownError, single_item
from kproxy.netfilter.nftables.json.statements import STATEMENTS
from kproxy.netfilter.nftables.json.writer import Writer
from kproxy.netfilter.nftables.statement import OpaqueStatement


def json_commands(text: str, source: str = "") -> tuple[list[str], list[str], list[OpaqueStatement]]:
    """The commands that a JSON document stands for.

    Returns: The commands, one of them a line or several; for each the path of its object; and the statements that have
    no words, which the commands name by their number (`json-statement 0`).

    Raises:
        NftSyntaxError: it is not nft's JSON, or of another schema version.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise NftSyntaxError(f"JSON expected: {error}", source=source) from None
    except RecursionError:
        raise NftSyntaxError("JSON of less depth expected", source=source) from None
    objects = document.get("nftables") if isinstance(document, dict) else None
    if not isinstance(objects, list):
        raise NftSyntaxError("an object with the list nftables expected", source=source)
    writer = Writer(COMMANDS, STATEMENTS, EXPRESSIONS)
    commands: list[str] = []
    paths: list[str] = []
    for index, item in enumerate(objects):
        path = f"nftables[{index}]"
        try:
            kind, body = single_item(item)
            path += f".{kind}"
            line = writer.command(kind, body)
        except UnknownError as error:
            raise NftSyntaxError(f"a known expression expected, not {error}", source=source, path=path) from None
        except MalformedError as error:
            raise NftSyntaxError(error.expected, source=source, path=path + error.path) from None
        except RecursionError:
            raise NftSyntaxError("JSON of less depth expected", source=source, path=path) from None
        if line:
            commands.append(line)
            paths.append(path)
    return commands, paths, writer.opaque


def path_of_line(commands: Sequence[str], paths: Sequence[str], line: int) -> str:
    """The path of the object that a line of the commands, counted from 1, stands for."""
    for command, path in zip(commands, paths, strict=True):
        line -= command.count("\n") + 1
        if line <= 0:
            return path
    return paths[-1] if paths else ""
