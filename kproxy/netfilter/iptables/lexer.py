"""Words and quotes, as iptables-restore splits a line and as iptables-save writes a string.

Blanks and tabs separate words. A double quote may open at the start of a word or inside it; inside quotes a backslash
takes the next character as it is, and the closing quote ends the word at once, so `a"b"c` is the two words `ab` and
`c`. Outside quotes a backslash and a single quote are ordinary characters. (Observed with iptables-restore 1.8.9.)
"""

from __future__ import annotations

import re

# The last alternative is a quote that never closes: it comes out as a word of its own, which `split_words` refuses.
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^ \t\n"]+(?:"(?:[^"\\]|\\.)*")?|"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = re.compile(r"[-_0-9A-Za-z]+")
_ESCAPED = re.compile(r"([\"\\'])")


def split_words(text: str) -> list[str]:
    """Split a line into raw words, quotes included; `unquote` turns each into its value.

    Raises:
        ValueError: a quote is not closed.
    """
    if '"' not in text:
        return text.split() if text.isascii() and text.isprintable() else _WORD.findall(text)
    words = _WORD.findall(text)
    if '"' in words:
        raise ValueError("a closing quote expected")
    return words


def unquote(word: str) -> str:
    """The value of one raw word from `split_words`."""
    if '"' not in word:
        return word
    start, _, quoted = word[:-1].partition('"')
    return start + (_ESCAPE.sub(r"\1", quoted) if "\\" in quoted else quoted)


def quote(value: str) -> str:
    """Write a string as iptables-save does: bare if it is letters, digits, `-` and `_` only, else in double quotes,
    with a backslash before `"`, `'` and a backslash."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = _ESCAPED.sub(r"\\\1", value) if _ESCAPED.search(value) else value
    return f'"{escaped}"'
