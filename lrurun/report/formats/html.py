"""A report as one self-contained HTML page, without scripts. Every number links to its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape as escape_html
from typing import Any

from lrurun.console import clean
from lrurun.report import page_figures
from lrurun.report.content import TITLE, ReportContent, RunGroup, sentence, three_digits
from lrurun.report.run_details import RunDetail
from lrurun.report.scores import ScoreForm
from lrurun.table import NOTHING, Column, Table

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Nothing is loaded; colours of a plane are images inside of the figures."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #667078; --rule: #d5d9de; --band: #eef3f9;
  --link: #0b57a4; --supported: #17692f; --contradicted: #a8201a; --undecided: #7a5200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --paper: #14171a; --faint: #9aa4ad; --rule: #363c42;
  --band: #1e2833; --link: #82b8f2; --supported: #6cc685; --contradicted: #f28b82; --undecided: #e2b85c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p, ul { max-width: 50rem; }
a { color: var(--link); }
.box { overflow-x: auto; margin-bottom: 1rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: 0.3rem 0.7rem; text-align: left; vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--rule); vertical-align: bottom; }
tbody tr { border-bottom: 1px solid var(--rule); }
tbody th { position: sticky; left: 0; background: var(--paper); font-weight: 600; }
.right { text-align: right; }
td a { color: inherit; text-decoration-color: var(--faint); text-underline-offset: 0.2em; }
.faint, .group { color: var(--faint); }
.group th { position: static; padding-top: 1.2rem; color: var(--ink); white-space: normal; }
.group div { position: sticky; left: 0.7rem; max-width: calc(min(100vw, 84rem) - 4rem); overflow-wrap: anywhere; }
.group span { font-weight: 400; color: var(--faint); }
:target, :target > tr > th { background: var(--band); }
.title { display: inline-block; max-width: 15rem; font-size: 0.85rem; font-weight: 400; white-space: normal;
  color: var(--faint); }
dl { max-width: 60rem; }
dt { font-weight: 600; margin-top: 0.8rem; }
dt .faint { font-weight: 400; }
dd { margin: 0; }
.supported { color: var(--supported); }
.contradicted { color: var(--contradicted); }
.undecided, .not-run, .not-comparable { color: var(--undecided); }
.foot { color: var(--faint); font-size: 0.9rem; padding-left: 1.2rem; }
figure { margin: 0; max-width: 34rem; }
figcaption { color: var(--faint); font-size: 0.9rem; }
svg { display: block; width: 100%; height: auto; }
@media (max-width: 40rem) { .title { max-width: 8.5rem; } th, td { padding: 0.3rem 0.5rem; } }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --faint: #444; --rule: #bbb; --band: #fff; --link: #0b57a4;
    --supported: #17692f; --contradicted: #a8201a; --undecided: #7a5200; }
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; }
  .box { overflow: visible; }
  a { color: inherit; text-decoration: none; }
  th, td { padding: 0.15rem 0.4rem; }
  tbody th, .group div { position: static; max-width: none; }
  tr, figure, dd { break-inside: avoid; }
  h2, dt, .group { break-after: avoid; }
}
"""


def render(content: ReportContent, details: Mapping[str, RunDetail]) -> str:
    """`content` as a page. Cells of runs that are not in `details` are empty."""
    groups = _groups(content)
    figures = page_figures.of(groups, details) if content.curves else ()
    drawn = [part for figure in figures for part in _figure(figure)]
    return page(content.title, [*above(content), *claims(content), *drawn, *runs(content, details)])


def _groups(content: ReportContent) -> list[RunGroup]:
    return [group for group in content.groups if group.runs or group.others]


def above(content: ReportContent) -> list[str]:
    """The question, the conclusions, the tables and their notes."""
    parts = []
    if content.question:
        parts.append(f"<p>{_text(content.question)}</p>")
    if content.conclusions:
        parts += ["<ul>", *(f"<li>{_text(one)}</li>" for one in content.conclusions), "</ul>"]
    for block in (*content.above[:1], content.table):
        parts += _table(block, {group.anchor for group in _groups(content)})
    notes = content.notes(content.table.columns)
    return [*parts, '<ul class="foot">', *(f"<li>{_text(one)}</li>" for one in notes), "</ul>"]


def claims(content: ReportContent, beside: Callable[[Any], str] | None = None) -> list[str]:
    """The claims, if there are any; `beside` is an element for each."""
    if not content.claims:
        return []
    parts = ["<h2>Claims</h2>", "<dl>"]
    for claim in content.claims:
        style = claim.shown.replace(" ", "-")
        parts.append(
            f'<dt><span class="{style}">{claim.shown}</span>{claim.mark}: {_text(sentence(claim.text))} '
            f'<span class="faint">({_text(claim.source)})</span></dt>'
        )
        parts.append(f"<dd>{_text(sentence(claim.detail))}{beside(claim) if beside else ''}</dd>")
    return [*parts, "</dl>"]


def page(title: str, body: Sequence[str]) -> str:
    """A self-contained page: our style, the title as its heading, and these elements below it."""
    shown = _text(title)
    head = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{shown}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{shown}</h1>",
    ]
    return "\n".join([*head, *body, "</main>", "</body>", "</html>"])


def _text(text: str) -> str:
    return escape_html(clean(text))


def _link(anchor: str, inner: str) -> str:
    return f'<a href="#{_text(anchor)}">{inner}</a>'


def _class(column: Column) -> str:
    return ' class="right"' if column.right else ""


def _table(block: Table, anchors: set[str]) -> list[str]:
    columns = block.columns
    first, *others = (column for column in columns if column is not TITLE)
    parts = ['<div class="box" tabindex="0">', "<table>", "<thead>", "<tr>"]
    parts += [f'<th scope="col"{_class(column)}>{_lines(column.name)}</th>' for column in (first, *others)]
    parts += ["</tr>", "</thead>", "<tbody>"]
    for row in block.rows:
        title = f'<br><span class="title">{_lines(TITLE.cell(row))}</span>' if TITLE in columns else ""
        parts += ["<tr>", f'<th scope="row">{_lines(first.cell(row))}{title}</th>']
        parts += [f"<td{_class(column)}>{_cell(column, row, anchors)}</td>" for column in others]
        parts.append("</tr>")
    return [*parts, "</tbody>", "</table>", "</div>"]


def _lines(text: str) -> str:
    return "<br>".join(_text(line) for line in text.split("\n"))


def _cell(column: Column, row: Any, anchors: set[str]) -> str:
    """A cell. Its first line links to the runs behind it, if there are any."""
    anchor = column.link(row) if column.link else None
    first, _, rest = column.cell(row).partition("\n")
    inner = f"<strong>{_text(first)}</strong>" if column.is_marked(row) else _text(first)
    if anchor in anchors and first not in ("", NOTHING):
        inner = _link(str(anchor), inner)
    return inner + (f'<br><span class="faint">{_lines(rest)}</span>' if rest else "")


def _figure(figure: page_figures.PageFigure) -> list[str]:
    runs = ", ".join(_link(group.anchor, _text(group.title)) for group in figure.groups)
    caption = " ".join([*map(_text, figure.caption), *([f"Runs: {runs}."] if runs else [])])
    return [
        f"<h2>{_text(figure.title)}</h2>",
        "<figure>",
        *([figure.svg] if figure.svg else []),
        f"<figcaption>{caption}</figcaption>",
        "</figure>",
    ]


# The runs


def runs(
    content: ReportContent, details: Mapping[str, RunDetail], address: Callable[[str], str] | None = None
) -> list[str]:
    """The runs behind the numbers; each is a link if runs have an `address`."""
    groups = _groups(content)
    if not groups:
        return []

    def name(run: str) -> str:
        return _text(run) if address is None else f'<a href="{_text(address(run))}">{_text(run)}</a>'

    headings = {"steps/s" if one.score is None else f"test {one.score.title} {one.score.symbol}" for one in groups}
    mixed = len(headings) > 1
    names = ["run", "seed", "state", "test score" if mixed else headings.pop().strip()]
    parts = ["<h2>Runs</h2>", '<div class="box" tabindex="0">', "<table>", "<thead>", "<tr>"]
    right = ["", ' class="right"', "", *[' class="right"'] * 3]
    parts += [
        f'<th scope="col"{style}>{_text(name)}</th>'
        for name, style in zip([*names, "step", "attempts"], right, strict=True)
    ]
    parts += ["</tr>", "</thead>"]
    by_anchor = {group.anchor: group for group in groups}
    for group in groups:
        about = _about(group, by_anchor, details)
        title = f"{_text(group.title)}{f' <span>{about}</span>' if about else ''}"
        head = f'<tr class="group"><th colspan="6" scope="rowgroup"><div>{title}</div></th></tr>'
        parts += [f'<tbody id="{_text(group.anchor)}">', head]
        if group.same_as is None:
            for run in (*group.runs, *group.others):
                cells = _run(details[run], group.score, mixed) if run in details else ["", "", "", "", ""]
                tds = "".join(f"<td{style}>{cell}</td>" for cell, style in zip(cells, right[1:], strict=True))
                parts.append(f'<tr><th scope="row">{name(run)}</th>{tds}</tr>')
        parts.append("</tbody>")
    return [*parts, "</table>", "</div>"]


def _run(detail: RunDetail, form: ScoreForm | None, mixed: bool) -> list[str]:
    """`mixed`: whether other groups have other metrics."""
    score = NOTHING
    if detail.score is not None and math.isfinite(detail.score):
        score = three_digits(detail.score) if form is None else form.full(detail.score)
        if mixed and form is not None:
            score = _text(form.labelled(score))
    return [
        str(detail.seed),
        _text(detail.state),
        score,
        f"{detail.step:,} of {detail.steps:,}",
        str(detail.attempts),
    ]


def _about(group: RunGroup, others: Mapping[str, RunGroup], details: Mapping[str, RunDetail]) -> str:
    """How the settings of a group differ from those of its base."""
    if group.same_as is not None:
        return f"has the settings and runs of {_link(group.same_as, _text(others[group.same_as].title))}"
    if group.on is None or group.on not in others:
        return ""
    base = others[group.on]
    while base.same_as is not None:
        base = others[base.same_as]
    comparison = f"compared with {_link(group.on, _text(others[group.on].title))}"
    mine, its = (next((details[run].settings for run in one.runs if run in details), None) for one in (group, base))
    if mine is None or its is None:
        return comparison
    changed = [
        f"{path} = {_value(mine[path])}" + (f" (instead of {_value(its[path])})" if path in its else "")
        for path in mine
        if path not in its or its[path] != mine[path]
    ]
    changed += [f"without {path}" for path in its if path not in mine]
    return f"{comparison}: {_text('; '.join(changed)) or 'no setting differs'}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
