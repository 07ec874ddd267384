"""What LaTeX has of a report, and in which form: the options of `lrurun report --format latex`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from lrurun.errors import UsageError, nearest_hint
from lrurun.report.widths import Width

TABLES = ("ablation", "claims", "map")
"""The tables of a report: its rungs, its claims, tasks by rungs."""


class PaperStyle(Struct, frozen=True, kw_only=True):
    """The form of tables for a paper."""

    plain: bool = False
    """Whether they have the form of a paper's tables, without words of lrurun's own."""
    caption: str = ""
    """LaTeX in place of the first sentence of the caption."""
    label: str = ""
    """The label, in place of ours."""
    width: Width = "column"
    tables: tuple[str, ...] = ()
    """Of `TABLES`; empty: what the report always has."""


def table_kinds(texts: Sequence[str]) -> tuple[str, ...]:
    """The tables that `--tables` names, separated by commas, each once.

    Raises:
        UsageError: there is no such table.
    """
    names = tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
    for name in names:
        if name not in TABLES:
            raise UsageError(
                f"--tables: expected some of {', '.join(TABLES)}, found {name!r}", nearest_hint(name, TABLES)
            )
    if texts and not names:
        raise UsageError(
            f"--tables: expected some of {', '.join(TABLES)}, found none", "as in --tables ablation,claims"
        )
    return names


def check_caption(text: str) -> str:
    """The text of `--caption`, which is LaTeX.

    Raises:
        UsageError: the document that reads it would not compile.
    """
    hint = "it is LaTeX: a per cent sign is \\%, and every { has its }"
    if not text.strip() or "\n" in text or not text.isprintable():
        raise UsageError(f"--caption: expected one line of text, found {text[:60]!r}", hint)
    rest = re.sub(r"\\.", "", text)
    if "%" in rest:
        raise UsageError(f"--caption: a bare % hides the rest of the line, found {text[:60]!r}", hint)
    depth = 0
    for sign in rest:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            break
    if depth or rest.count("$") % 2 or (text.endswith("\\") and not text.endswith("\\\\")):
        raise UsageError(
            f"--caption: unequal braces, dollar signs or a backslash at its end, found {text[:60]!r}", hint
        )
    return text.strip()


def check_label(text: str) -> str:
    """The text of `--label`.

    Raises:
        UsageError: LaTeX cannot refer to it.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9:._+/-]*", text, re.ASCII):
        raise UsageError(
            f"--label: expected letters, digits and any of : . _ + / -, found {text[:60]!r}",
            "as in --label tab:ablation",
        )
    return text
