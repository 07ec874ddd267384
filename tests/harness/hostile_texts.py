"""Texts that mean harm to whatever reads them as more than text, and what must be true of all that is printed."""

from __future__ import annotations

import csv
import html.parser
import io
import re
from collections.abc import Sequence

TEXTS = {
    "sql": "'; DROP TABLE runs; -- \" ; delete from runs",
    "markup": "[bold red]x[/bold red] [link=http://x]y[/link] [/] :smile:",
    "csi": "\x1b[2J\x1b[1;31mred\x1b[0m",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIC8=\x07",
    "title": "\x1b]0;owned\x07",
    "bell": "ding\x07\b\b\bdong",
    "return": "good\rbad",
    "c1": "\x9b31mred\x9d0;t\x9c\x85\x90q\x9c",
    "formula": "=cmd|'/c calc'!A1 =HYPERLINK(\"http://x\")",
    "plus": "+1+1",
    "minus": "-2+3",
    "at": "@SUM(A1:A9)",
    "tab": "\t=1+1",
    "newline": "one\n=2+2\r\n@three",
    "path": "../../../../etc/passwd",
    "absolute": "/etc/passwd",
    "nul": "be\x00fore",
    "bidi": "abc\u202edlrow\u2066x\u2069\u200f",
    "separators": "a\u2028b\u2029c\ufeff",
    "html": "</td></table><script>alert(1)</script><img src=x onerror=alert(1)> \" onclick='x'",
    "latex": "\\input{/etc/passwd} $x^2$ %c & # _ ~ {} ^^5cinput \\write18{ls}",
    "markdown": "| a | [x](javascript:alert(1)) ![y](http://z) `q` **b** <!-- c",
    "format": "{0} {run.__class__} %s %n ${HOME} $(id) `id`",
    "long": "x" * 100_000,
}

ODD = ("nul", "long", "formula", "plus", "minus", "at", "tab", "newline", "return")
"""Those that only do harm at the beginning, or alone."""

TOGETHER = " ".join(text for name, text in TEXTS.items() if name not in ODD)

RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What never reaches a terminal from data."""

OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
"""What Rich itself draws with."""

CODES = {0, 1, 2, 3, 4, 5}


def check(code: int, out: str, err: str, words: Sequence[str] = ()) -> None:
    """A documented exit code, no trace, nothing raw; a failure is an error of one or two lines at the end."""
    about = (words, code, out[-500:], err[-800:])
    assert code in CODES, about
    assert "Traceback" not in out + err, about
    for text in (out, err):
        found = RAW.search(text)
        assert not found, (words, text[max(0, found.start() - 80) : found.end() + 20])
    if code:
        lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
        begins = [line.partition(" ")[0] for line in lines[-2:]]
        assert begins in (["error:", "hint:"], ["error:"]) or "ledger check" in " ".join(words), about
        assert "a bug in lrurun" not in err, about
        assert all(len(line) < 5000 for line in lines), about


def formulas(text: str) -> list[str]:
    """Cells of a CSV text that a spreadsheet would compute, numbers aside."""
    found = []
    csv.field_size_limit(2**31 - 1)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            if cell.lstrip()[:1] in ("=", "+", "-", "@", "\t", "\r") and not re.fullmatch(
                r"-?[\d.]+(e[+-]?\d+)?|-inf", cell
            ):
                found.append(cell)
    return found


class _Parts(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[tuple[str, ...]] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.kinds.add((tag, *sorted(name for name, _ in attrs)))
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src"):
                assert (value or "").startswith("#"), (tag, name, value)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment in the page: {data[:80]}")


def parts(page: str) -> set[tuple[str, ...]]:
    """Elements of an HTML page, each with the names of its attributes."""
    parser = _Parts()
    parser.feed(page)
    parser.close()
    return parser.kinds
