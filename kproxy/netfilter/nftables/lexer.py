"""The words of nft's language.

One regular expression splits a text into tokens: words, strings in quotes, punctuation, and the ends of lines, which
end statements as `;` does. A word is whatever stands between blanks and punctuation, so `10.0.0.1-10.0.0.9`, `svc/tcp`
and `00:11:22:33:44:55` are one word each; what is in it depends on what is expected there, which the reader knows.
Comments are dropped, apart from those with which nft says something: `# handle 4` and the warning above a table that
another program manages.

Offsets are worked out only when an error or a piece of unknown text needs them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

_TOKEN: Final = re.compile(
    r'[^\s{}(),;=!<>&|^"#\[\]@$\\]+|[{},;\n]|"[^"\n]*"|#[^\n]*|[@$][^\s{}(),;=!<>&|^"#\[\]@$\\]*|[!=<>]=|<<|>>'
    r"|[()=!<>&|^\[\]]|\\\n|\S"
)
_KEPT_COMMENT: Final = re.compile(r"# (?:handle [0-9]{1,20}\s*$|Warning: table |progname )|# xt_")

END: Final = ""
"""The token after the last one."""

LOOKAHEAD: Final = 4


def tokenize(text: str) -> list[str]:
    """The tokens of a text, with `END` at the end, several times, so that one may look ahead."""
    found = _TOKEN.findall(text)
    if "#" in text or "\\" in text:
        found = [token for token in found if _is_kept(token)]
    found += [END] * LOOKAHEAD
    return found


def _is_kept(token: str) -> bool:
    if token[0] == "#":
        return _KEPT_COMMENT.match(token) is not None
    return token != "\\\n"


class Source:
    """A text with its tokens; `name` is what messages call it."""

    __slots__ = ("_lines", "_offsets", "name", "text", "tokens")

    def __init__(self, text: str, name: str = "") -> None:
        self.text = text
        self.name = name
        self.tokens = tokenize(text)
        self._offsets: list[tuple[int, int]] | None = None
        self._lines: list[int] | None = None

    def _spans(self) -> list[tuple[int, int]]:
        if self._offsets is None:
            found = _TOKEN.finditer(self.text)
            self._offsets = [match.span() for match in found if _is_kept(match.group())]
            self._offsets.append((len(self.text), len(self.text)))
        return self._offsets

    def _offset(self, index: int) -> int:
        spans = self._spans()
        return spans[min(index, len(spans) - 1)][0]

    def line_of(self, index: int) -> int:
        """The line, counted from 1, of a token."""
        if self._lines is None:
            self._lines = [match.start() for match in re.finditer("\n", self.text)]
        return bisect_right(self._lines, self._offset(index) - 1) + 1

    def line_text(self, index: int) -> str:
        """The whole line of a token, without blanks around it."""
        offset = self._offset(index)
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : None if end < 0 else end].strip()

    def between(self, first: int, stop: int) -> str:
        """The text of the tokens from `first` up to, without, `stop`, as it was written."""
        if first >= stop:
            return ""
        spans = self._spans()
        return self.text[spans[first][0] : spans[stop - 1][1]]
