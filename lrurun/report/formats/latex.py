"""A report as LaTeX: a table environment to \\input into a document; conclusions and claims are comments around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import structs

from lrurun.console import clean
from lrurun.report.formats.paper_style import PaperStyle
from lrurun.report.tables.content import ON_PAGE, ReportContent, sentence
from lrurun.report.tables.paper_tables import PaperTable, pages
from lrurun.report.widths import Width
from lrurun.table import Column, narrowed

_HEAD = r"% Needs \usepackage{booktabs} and \usepackage{graphicx} in the preamble; \input this file where it belongs."
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""The beginning of a box that has the natural width of the table, but is no wider than the text."""


def render(
    content: ReportContent, *, table_only: bool = False, whole: bool = False, style: PaperStyle | None = None
) -> str:
    """`content` as LaTeX that every engine compiles, in ASCII.

    Args:
        table_only: the tabular environment alone.
        whole: whether all columns are shown, however wide.
    """
    style = style or PaperStyle()
    columns = content.table.columns if whole else narrowed(content.table.columns, ON_PAGE)
    if table_only:
        return "\n".join(_tabular(columns, content.table.rows))
    caption = " ".join(sentence(text) for text in (content.title, content.question) if text)
    caption, label = _caption(style, [caption]), style.label or f"tab:{content.label}"
    star = "*" * (style.width == "page")
    lines = [_HEAD, *(f"% {escape(conclusion)}" for conclusion in content.conclusions())]
    for table in content.above[-1:]:
        # Of its own, because two tables can be more than a page.
        lines += [
            *_begin(caption, f"{label}-grid", star),
            *_fitted(table.columns, table.rows),
            rf"\end{{table{star}}}",
        ]
    lines += [
        *_begin(caption, label, star),
        *_fitted(columns, content.table.rows),
        r"\par\medskip",
        r"\begin{minipage}{\linewidth}\footnotesize\raggedright",
        *(rf"{escape(note)}\par" for note in content.notes(columns)),
        r"\end{minipage}",
        rf"\end{{table{star}}}",
    ]
    for claim in content.claims:
        text = f"{sentence(claim.text)} ({claim.source}) {sentence(claim.detail)}"
        lines.append(f"% {claim.shown}{claim.mark}: {escape(text)}")
    return "\n".join(lines)


def _begin(caption: str, label: str, star: str = "") -> list[str]:
    return [rf"\begin{{table{star}}}[htbp]", r"\centering", rf"\caption{{{caption}}}", rf"\label{{{label}}}"]


def _caption(style: PaperStyle, first: Sequence[str], others: Sequence[str] = ()) -> str:
    """The sentences of a caption as LaTeX; the user's text, which is LaTeX, stands in place of the first ones."""
    if not style.caption:
        return escape(" ".join([*first, *others]))
    own = "".join(sign if sign.isascii() else _character(sign) for sign in sentence(style.caption))
    return " ".join([own, *map(escape, others)])


# Tables for a paper

WIDTHS: dict[Width, float] = {"column": 229.0, "page": 345.0}
"""Points that a table has: a column of a page in two columns, and the text of a page, of the class article."""
_SIZES = (("", 1.0), (r"\small", 0.925), (r"\footnotesize", 0.85), (r"\scriptsize", 0.8))
"""The command of a size of type -> how wide its letters are, as a share of those of ten points."""
_GAPS = (6, 4, 3)
"""Points that \\tabcolsep may have: half of the gap between columns."""


def paper_table(table: PaperTable, style: PaperStyle, *, table_only: bool = False) -> str:
    """A table for a paper, in the largest type in which it fits; one that fits in none is scaled.

    With `table_only`, the tabular environment alone.
    """
    forms = [table]
    while forms[-1].narrower is not None:
        forms.append(forms[-1].narrower)
    room = WIDTHS[style.width]
    # shorter cells are better than the smallest type, and that is better than scaling
    fits = [(form, fit) for form in forms if (fit := _fit(form, room))]
    readable = [(form, fit) for form, fit in fits if fit[0] != _SIZES[-1][0]]
    chosen, fit = next(iter(readable or fits), (forms[-1], None))
    lines = _plain_tabular(chosen, room, fit)
    if table_only:
        return "\n".join(lines)
    star = "*" * (style.width == "page")
    packages = [r"\usepackage{booktabs}", *([] if fit else [r"\usepackage{graphicx}"])]
    size, gap = fit or (r"\scriptsize", _GAPS[-1])
    settings = [*([size] if size else []), *([rf"\setlength{{\tabcolsep}}{{{gap}pt}}"] if gap != _GAPS[0] else [])]
    return "\n".join(
        [
            f"% Needs {' and '.join(packages)} in the preamble.",
            *_begin(_caption(style, [chosen.title], chosen.legend), style.label or f"tab:{chosen.label}", star),
            r"\vspace{4pt}",
            *settings,
            *(lines if fit else [_FIT, *lines[:-1], f"{lines[-1]}}}"]),
            rf"\end{{table{star}}}",
        ]
    )


_LETTERS_OF_A_LINE: dict[Width, int] = {"column": 25, "page": 48}
"""About how many letters a line of a column of sentences has."""


def paper_pages(table: PaperTable, style: PaperStyle, *, table_only: bool = False) -> Iterator[str]:
    """A table for a paper in parts that fit a page each: all but the first are a continuation, with a number in their
    label."""
    for number, part in enumerate(pages(table, _LETTERS_OF_A_LINE[style.width]), 1):
        if number > 1:
            caption, label = (style.caption and f"{style.caption.rstrip('.')} (continued).", style.label)
            part_style = structs.replace(style, caption=caption, label=label and f"{label}-{number}")
        else:
            part_style = style
        yield paper_table(part, part_style, table_only=table_only)


def _fit(table: PaperTable, room: float) -> tuple[str, int] | None:
    """The size of type and half of the gap between columns with which a table is no wider than `room` points."""
    sizes = _SIZES[1:] if table.wrapped else _SIZES  # sentences need room
    return next(
        ((size, gap) for size, share in sizes for gap in _GAPS if _left(table, room, share, gap) >= 0),
        None,
    )


def _left(table: PaperTable, room: float, share: float, gap: int) -> float:
    """The points of `room` that a table leaves, and its column of sentences has beyond the least."""
    widths = [
        max(map(_width, _texts(column, table.rows))) for column in table.columns if not _is_wrapped(column, table)
    ]
    gaps = sum(bool(column.name) for column in table.columns) - 1
    return room - share * sum(widths) - 2 * gap * gaps - _LEAST * room * bool(table.wrapped)


_LEAST = 0.44
"""The least share of the width of a table that a column of sentences has."""


def _is_wrapped(column: Column, table: PaperTable) -> bool:
    return bool(table.wrapped) and column.name == table.wrapped


def _plain_tabular(table: PaperTable, room: float, fit: tuple[str, int] | None) -> list[str]:
    size, gap = fit or (_SIZES[-1][0], _GAPS[-1])
    beyond = max(0.0, _left(table, room, dict(_SIZES)[size], gap)) if table.wrapped else 0.0

    def form(column: Column) -> str:
        if _is_wrapped(column, table):
            return rf"p{{{_LEAST + 0.95 * beyond / room:.2f}\linewidth}}"
        if not column.name:
            return r"@{\,}l"
        return "r" if column.right else "l"

    lines = _tabular(table.columns, table.rows, wrapped=table.wrapped)
    return [rf"\begin{{tabular}}{{@{{}}{''.join(map(form, table.columns))}@{{}}}}", *lines[1:]]


def _texts(column: Column, rows: Iterable[Any]) -> list[str]:
    """The lines of a column, as wide as bold ones where they are."""
    cells = [line for row in rows for line in (column.cell(row) + "\0" * column.is_marked(row)).split("\n")]
    return [*column.name.split("\n"), *cells]


_LETTERS = {
    **dict.fromkeys("!',.:;[]il", 0.278),
    **dict.fromkeys("fj", 0.306),
    **dict.fromkeys(" -", 0.334),
    **dict.fromkeys("()tI", 0.389),
    **dict.fromkeys("rs", 0.395),
    **dict.fromkeys("cez", 0.445),
    **dict.fromkeys("$*/0123456789ago~–↑↓", 0.5),
    **dict.fromkeys("kqvxy", 0.528),
    **dict.fromkeys("SbdhnpuJ", 0.556),
    **dict.fromkeys("LZF_", 0.653),
    **dict.fromkeys("EPBCTwR", 0.736),
    **dict.fromkeys("#%mM", 0.917),
    **dict.fromkeys("W@", 1.03),
    **dict.fromkeys("⇡⇣⁼", 0.0),
}
"""The widths of Computer Modern's letters in ems, rounded up; others are about as wide as Q."""


def _width(text: str) -> float:
    """Points that a line of text is wide, in type of ten points."""
    bold = 1.15 if text.endswith("\0") else 1.0
    # the sign of a number is a minus
    return 10 * bold * sum(_LETTERS.get(sign, 0.78) for sign in re.sub(r"(?<![\w.])-(?=\d)", "−", text.rstrip("\0")))


def _fitted(columns: Sequence[Column], rows: Iterable[Any]) -> list[str]:
    *lines, end = _tabular(columns, rows)
    return [_FIT, *lines, f"{end}}}"]


def _tabular(columns: Sequence[Column], rows: Iterable[Any], wrapped: str = "") -> list[str]:
    lines = [rf"\begin{{tabular}}{{{''.join('r' if column.right else 'l' for column in columns)}}}", r"\toprule"]
    lines += [*_lines([(column.name, False) for column in columns]), r"\midrule"]
    for number, row in enumerate(rows):
        lines += [r"\addlinespace[2pt]"] * bool(wrapped and number)
        cells = [(column.cell(row), column.is_marked(row)) for column in columns]
        lines += _lines(cells, {k for k, column in enumerate(columns) if wrapped and column.name == wrapped})
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _lines(cells: Iterable[tuple[str, bool]], wrapped: Collection[int] = ()) -> list[str]:
    """The lines of a row, as many as its longest cell has; the first of a marked cell is bold. Cells with the numbers
    in `wrapped` are ragged at the right."""
    columns = []
    for number, (text, marked) in enumerate(cells):
        first, *rest = map(escape, text.split("\n"))
        first = rf"\raggedright {first}" if number in wrapped else first
        columns.append([rf"\textbf{{{first}}}" if marked else first, *rest])
    return [" & ".join(line) + r" \\" for line in zip_longest(*columns, fillvalue="")]


# Text

_HANGING = {
    "⇡": r"\rlap{$^{\uparrow}$}",
    "⇣": r"\rlap{$^{\downarrow}$}",
    "⁼": r"\rlap{$^{=}$}",
}
"""Marks beside a number that do not move it."""
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
        "↑": r"\uparrow",
        "▲": r"\bigtriangleup",
        "▼": r"\bigtriangledown",
        "↓": r"\downarrow",
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
    if character in _HANGING:
        return _HANGING[character]
    if character in _SIGNS:
        return _SIGNS[character]
    if character in _MATHS:
        return f"${_MATHS[character]}$"
    base, accent = (*unicodedata.normalize("NFD", character), "")[:2]
    if base.isascii() and base.isalpha() and accent in _ACCENTS:
        return rf"\{_ACCENTS[accent]}{{{base}}}"
    # No font of LaTeX's own has it: LaTeX would stop.
    return rf"\texttt{{U+{ord(character):04X}}}"
