"""A report as LaTeX: a table environment to \\input into a document; conclusions and claims are comments around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from lrurun.console import clean
from lrurun.report.tables.content import ON_PAGE, ReportContent, sentence
from lrurun.table import Column, narrowed

_HEAD = r"% Needs \usepackage{booktabs} and \usepackage{graphicx} in the preamble; \input this file where it belongs."
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""The beginning of a box that has the natural width of the table, but is no wider than the text."""


def render(content: ReportContent, *, table_only: bool = False) -> str:
    """`content` as LaTeX that every engine compiles, in ASCII; `table_only` is the tabular environment alone."""
    columns = narrowed(content.table.columns, ON_PAGE)
    if table_only:
        return "\n".join(_tabular(columns, content.table.rows))
    caption = " ".join(sentence(text) for text in (content.title, content.question) if text)
    lines = [_HEAD, *(f"% {escape(conclusion)}" for conclusion in content.conclusions())]
    for table in content.above[-1:]:
        # Of its own, because two tables can be more than a page.
        lines += [*_begin(caption, f"{content.label}-grid"), *_fitted(table.columns, table.rows), r"\end{table}"]
    lines += [
        *_begin(caption, content.label),
        *_fitted(columns, content.table.rows),
        r"\par\medskip",
        r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
        *(rf"{escape(note)}\par" for note in content.notes(columns)),
        r"\end{minipage}",
        r"\end{table}",
    ]
    for claim in content.claims:
        text = f"{sentence(claim.text)} ({claim.source}) {sentence(claim.detail)}"
        lines.append(f"% {claim.shown}{claim.mark}: {escape(text)}")
    return "\n".join(lines)


def _begin(caption: str, label: str) -> list[str]:
    return [r"\begin{table}[htbp]", r"\centering", rf"\caption{{{escape(caption)}}}", rf"\label{{tab:{label}}}"]


def _fitted(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    *lines, end = _tabular(columns, rows)
    return [_FIT, *lines, f"{end}}}"]


def _tabular(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    lines = [rf"\begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in columns)}}}", r"\toprule"]
    lines += [*_lines([(column.name, False) for column in columns]), r"\midrule"]
    for row in rows:
        lines += _lines([(column.cell(row), column.is_marked(row)) for column in columns])
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _lines(cells: Iterable[tuple[str, bool]]) -> list[str]:
    """The lines of a row, as many as its longest cell has; the first of a marked cell is bold."""
    columns = []
    for text, marked in cells:
        first, *rest = map(escape, text.split("\n"))
        columns.append([rf"\textbf{{{first}}}" if marked else first, *rest])
    return [" & ".join(line) + r" \\" for line in zip_longest(*columns, fillvalue="")]


# Text

_SPECIAL = {
    **{character: "\\" + character for character in "%&#$_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    # babel reads letters after a straight quote
    '"': "''",
    # after the end of a row, a bracket or star would be its option
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    # separates what would run together
    "\0": "{}",
}
_SIGNS = {
    **{"\xa0": "~", "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''"},
    **{"ß": r"\ss{}", "æ": r"\ae{}", "Æ": r"\AE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}"},
    **{"…": r"\dots{}", "§": r"\S{}", "©": r"\copyright{}", "†": r"\dag{}", "‡": r"\ddag{}"},
}
_MATHS = {
    **{
        "±": r"\pm",
        "×": r"\times",
        "−": "-",
        "≤": r"\leq",
        "≥": r"\geq",
        "≠": r"\neq",
        "≈": r"\approx",
        "∞": r"\infty",
    },
    **{
        "→": r"\to",
        "←": r"\leftarrow",
        "·": r"\cdot",
        "∈": r"\in",
        "√": r"\surd",
        "°": r"{}^\circ",
        "µ": r"\mu",
        "∞": r"\infty",
    },
    **{"²": "{}^2", "³": "{}^3", "¹": "{}^1", "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta"},
    **{"ε": r"\epsilon", "ζ": r"\zeta", "η": r"\eta", "θ": r"\theta", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu"},
    **{"ν": r"\nu", "ξ": r"\xi", "π": r"\pi", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "φ": r"\phi", "χ": r"\chi"},
    **{"ψ": r"\psi", "ω": r"\omega", "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda", "Σ": r"\Sigma"},
    **{"Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega", "Π": r"\Pi"},
}
_ACCENTS = {
    **{"\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0308": '"', "\u030a": "r", "\u030c": "v"},
    **{"\u0304": "=", "\u0306": "u", "\u0307": ".", "\u030b": "H", "\u0327": "c"},
}


def escape(text: str) -> str:
    """Text as LaTeX that prints that text, in ASCII."""
    # Two hyphens would become a dash; the sign of a number is a minus.
    text = re.sub(r"-(?=-)", "-\0", clean(text))
    text = "".join(_character(character) for character in text)
    text = re.sub(r"(?<![\w.\-])-(?=\d)", "$-$", text)
    return re.sub(r"(?<![\w.])(\d\.\d+)e([+-])0*(\d+)(?!\w)", _power_of_ten, text)


def _power_of_ten(number: re.Match[str]) -> str:
    sign = "" if number[2] == "+" else "-"
    return rf"{number[1]}$\cdot 10^{{{sign}{number[3]}}}$"


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character
    if character in _SIGNS:
        return _SIGNS[character]
    if character in _MATHS:
        return f"${_MATHS[character]}$"
    base, accent = (*unicodedata.normalize("NFD", character), "")[:2]
    if base.isascii() and base.isalpha() and accent in _ACCENTS:
        return rf"\{_ACCENTS[accent]}{{{base}}}"
    # No font of LaTeX's own has it: LaTeX would stop.
    return rf"\texttt{{U+{ord(character):04X}}}"
