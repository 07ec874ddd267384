"""A report as one HTML page that needs nothing else: no script, no network. Every number leads to its runs."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape as escape_html
from itertools import groupby
from typing import Any

from lrurun.console import clean
from lrurun.report import statistics
from lrurun.report.detail import Detail
from lrurun.report.sheet import NOTHING, TITLE, Block, Column, Group, Sheet, sentence, three_digits

_MOST_POINTS = 150
"""Of a curve that is drawn: more are not seen."""

_STYLE = """
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
.undecided { color: var(--undecided); }
.foot { color: var(--faint); font-size: 0.9rem; padding-left: 1.2rem; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: 1rem; }
figure { margin: 0; }
figcaption { font-size: 0.9rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--faint); font-size: 10px; }
.axis { stroke: var(--rule); }
.base { fill: none; stroke: var(--faint); stroke-dasharray: 3 3; }
.mean { fill: none; stroke: var(--link); stroke-width: 1.8; }
.dot { fill: var(--link); }
.circle { fill: none; stroke: var(--rule); }
.before { fill: none; stroke: var(--faint); stroke-width: 0.7; }
.after { fill: var(--link); opacity: 0.7; }
.spread { fill: var(--link); opacity: 0.2; }
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


def render(sheet: Sheet, details: Mapping[str, Detail]) -> str:
    """`sheet` as a page; what `details` does not know of a run is left out."""
    title = _text(sheet.title)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{title}</h1>",
    ]
    if sheet.question:
        parts.append(f"<p>{_text(sheet.question)}</p>")
    groups = [group for group in sheet.groups if group.runs or group.others]
    for block in (*sheet.above[:1], Block(columns=sheet.markdown, rows=sheet.rows)):
        parts += _table(block, {group.anchor for group in groups})
    parts += ['<ul class="foot">', *(f"<li>{_text(one)}</li>" for one in sheet.foot), "</ul>"]
    if sheet.claims:
        parts += ["<h2>Claims</h2>", "<dl>"]
        for claim in sheet.claims:
            parts.append(
                f'<dt><span class="{claim.verdict}">{claim.verdict}</span>: {_text(sentence(claim.text))} '
                f'<span class="faint">({_text(claim.source)})</span></dt>'
            )
            parts.append(f"<dd>{_text(sentence(claim.detail))}</dd>")
        parts.append("</dl>")
    if sheet.curves:
        parts += _curves(groups, details)
        parts += _planes(groups, details)
    parts += _runs(groups, sheet.document["metric"], details)
    return "\n".join([*parts, "</main>", "</body>", "</html>"])


def _text(text: str) -> str:
    return escape_html(clean(text))


def _link(anchor: str, inner: str) -> str:
    return f'<a href="#{_text(anchor)}">{inner}</a>'


def _class(column: Column) -> str:
    return ' class="right"' if column.right else ""


def _table(block: Block, anchors: set[str]) -> list[str]:
    columns = block.columns
    first, *others = (column for column in columns if column is not TITLE)
    parts = ['<div class="box">', "<table>", "<thead>", "<tr>"]
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
    """A cell whose first line leads to the runs behind it, where there are any."""
    anchor = column.link(row) if column.link else None
    first, _, rest = column.cell(row).partition("\n")
    inner = f"<strong>{_text(first)}</strong>" if column.is_marked(row) else _text(first)
    if anchor in anchors and first not in ("", NOTHING):
        inner = _link(str(anchor), inner)
    return inner + (f'<br><span class="faint">{_lines(rest)}</span>' if rest else "")


# The runs


def _runs(groups: Sequence[Group], metric: str, details: Mapping[str, Detail]) -> list[str]:
    if not groups:
        return []
    speed = metric.startswith("machine/")
    names = ["run", "seed", "state", "steps/s" if speed else f"{metric.replace('/', ' ')} %"]
    parts = ["<h2>Runs</h2>", '<div class="box">', "<table>", "<thead>", "<tr>"]
    right = ["", ' class="right"', "", *[' class="right"'] * 3]
    parts += [
        f'<th scope="col"{style}>{_text(name)}</th>'
        for name, style in zip([*names, "step", "attempts"], right, strict=True)
    ]
    parts += ["</tr>", "</thead>"]
    by_anchor = {group.anchor: group for group in groups}
    for group in groups:
        said = _about(group, by_anchor, details)
        title = f"{_text(group.title)}{f' <span>{said}</span>' if said else ''}"
        head = f'<tr class="group"><th colspan="6" scope="rowgroup"><div>{title}</div></th></tr>'
        parts += [f'<tbody id="{_text(group.anchor)}">', head]
        if group.same_as is None:
            for run in (*group.runs, *group.others):
                cells = _run(details[run], speed) if run in details else ["", "", "", "", ""]
                tds = "".join(f"<td{style}>{cell}</td>" for cell, style in zip(cells, right[1:], strict=True))
                parts.append(f'<tr><th scope="row">{_text(run)}</th>{tds}</tr>')
        parts.append("</tbody>")
    return [*parts, "</table>", "</div>"]


def _run(detail: Detail, speed: bool) -> list[str]:
    score = NOTHING
    if detail.score is not None and math.isfinite(detail.score):
        score = three_digits(detail.score) if speed else f"{detail.score * 100:.2f}"
    return [
        str(detail.seed),
        _text(detail.state),
        score,
        f"{detail.step:,} of {detail.steps:,}",
        str(detail.attempts),
    ]


def _about(group: Group, others: Mapping[str, Group], details: Mapping[str, Detail]) -> str:
    """What a group is beside the one that it is compared with."""
    if group.same_as is not None:
        return f"has the settings and runs of {_link(group.same_as, _text(others[group.same_as].title))}"
    if group.on is None or group.on not in others:
        return ""
    base = others[group.on]
    while base.same_as is not None:
        base = others[base.same_as]
    said = f"compared with {_link(group.on, _text(others[group.on].title))}"
    mine, its = (next((details[run].settings for run in one.runs if run in details), None) for one in (group, base))
    if mine is None or its is None:
        return said
    moved = [
        f"{path} = {_value(mine[path])}" + (f" (there {_value(its[path])})" if path in its else "")
        for path in mine
        if path not in its or its[path] != mine[path]
    ]
    moved += [f"without {path}" for path in its if path not in mine]
    return f"{said}: {_text('; '.join(moved)) or 'no setting differs'}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# Learning curves

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 300, 170, 34, 8, 8, 18
_Points = list[tuple[int, float, float, float]]
"""(step, mean, least, most)."""


def _curves(groups: Sequence[Group], details: Mapping[str, Detail]) -> list[str]:
    """A chart a rung, all to one scale."""
    curves = {
        group.anchor: _over_seeds([details[run].curve for run in group.runs if run in details])
        for group in groups
        if group.same_as is None
    }
    curves = {anchor: points for anchor, points in curves.items() if points}
    if not curves:
        return []
    every = [point for points in curves.values() for point in points]
    steps = max(step for step, *_ in every)
    low, high = min(least for *_, least, _ in every), max(most for *_, most in every)
    ticks = _ticks(low * 100, high * 100)
    low, high = min(low, ticks[0] / 100), max(high, ticks[-1] / 100)
    parts = [
        "<h2>Learning curves</h2>",
        "<p>Accuracy on validation in per cent against training steps: the mean over finished seeds, and a band from "
        "the lowest to the highest of them. Dashed: the rung that it is compared with.</p>",
        '<div class="curves">',
    ]
    same = {group.anchor: group.same_as for group in groups}
    for group in groups:
        if group.anchor not in curves:
            continue
        on = group.on
        while on is not None and same.get(on):
            on = same[on]
        base = curves.get(on, []) if on is not None else []
        parts.append("<figure>")
        parts += _chart(group.title, curves[group.anchor], base, steps=steps, low=low, high=high, ticks=ticks)
        parts += [f"<figcaption>{_link(group.anchor, _text(group.title))}</figcaption>", "</figure>"]
    return [*parts, "</div>"]


def _over_seeds(curves: Iterable[Sequence[tuple[int, float]]]) -> _Points:
    """Mean and range at every step that all of them have, thinned to what can be seen."""
    curves = [curve for curve in curves if curve]
    rows = sorted((step, value) for curve in curves for step, value in curve if math.isfinite(value))
    points: _Points = []
    for step, group in groupby(rows, key=lambda row: row[0]):
        found = [value for _, value in group]
        if len(found) == len(curves):
            points.append((step, statistics.mean(found) or 0.0, min(found), max(found)))
    every = math.ceil(len(points) / _MOST_POINTS)
    return points[::-every][::-1] if points else []


def _ticks(low: float, high: float) -> list[float]:
    """Two to six round numbers from below `low` to above `high`."""
    span = max(high - low, 1e-3)
    power = 10.0 ** math.floor(math.log10(span))
    step = next(power * factor for factor in (0.2, 0.5, 1, 2, 5) if span / (power * factor) <= 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _chart(
    title: str, points: _Points, base: _Points, *, steps: int, low: float, high: float, ticks: Sequence[float]
) -> list[str]:
    def x(step: int) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * step / max(steps, 1), 1)

    def y(value: float) -> float:
        return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - value) / (high - low), 1)

    def line(style: str, drawn: Iterable[tuple[float, float]]) -> str:
        return f'<polyline class="{style}" points="{" ".join(f"{a},{b}" for a, b in drawn)}"/>'

    last = points[-1]
    told = f"{title}: validation accuracy {last[1] * 100:.2f} % at step {last[0]:,}"
    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(told)}">']
    for tick in ticks:
        at = y(tick / 100)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 4}" y="{at + 3:.1f}" text-anchor="end">{tick:.4g}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 4}">0</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 4}" text-anchor="end">{steps:,}</text>')
    band = [(x(step), y(most)) for step, _, _, most in points] + [(x(p[0]), y(p[2])) for p in reversed(points)]
    parts.append(f'<polygon class="spread" points="{" ".join(f"{a},{b}" for a, b in band)}"/>')
    if base:
        parts.append(line("base", ((x(step), y(mean)) for step, mean, *_ in base)))
    parts.append(line("mean", ((x(step), y(mean)) for step, mean, *_ in points)))
    if len(points) == 1:
        parts.append(f'<circle class="dot" cx="{x(last[0])}" cy="{y(last[1])}" r="3"/>')
    return [*parts, "</svg>"]


# Eigenvalues

_SIDE = 300
_MOST_EIGENVALUES = 400
"""Of a plane, before and after training each: more are not told apart."""


def _planes(groups: Sequence[Group], details: Mapping[str, Detail]) -> list[str]:
    """The complex plane of a rung each, of its first run that has eigenvalues."""
    drawn = []
    for group in groups:
        known = [details[run] for run in group.runs if run in details and details[run].trained]
        if group.same_as is None and known:
            drawn.append((group, known[0]))
    if not drawn:
        return []
    parts = [
        "<h2>Eigenvalues</h2>",
        "<p>Eigenvalues of the recurrence of all layers of one run, and the unit circle: circles before training, dots "
        f"after it, not more than {_MOST_EIGENVALUES} of each.</p>",
        '<div class="curves">',
    ]
    for group, found in drawn:
        parts.append("<figure>")
        parts += _plane(group.title, found)
        name = f"{_link(group.anchor, _text(group.title))}, seed {found.seed}"
        parts += [f"<figcaption>{name}</figcaption>", "</figure>"]
    return [*parts, "</div>"]


def _plane(title: str, found: Detail) -> list[str]:
    before, after = (
        [value for value in values[:: math.ceil(len(values) / _MOST_EIGENVALUES) or 1] if cmath.isfinite(value)]
        for values in (found.initial, found.trained)
    )
    # one that has run far away would leave nothing to see of the others
    reach = min(max([1.0, *(max(abs(v.real), abs(v.imag)) for v in (*before, *after))]), 2.0) * 1.04

    def at(value: complex) -> tuple[float, float]:
        middle = _SIDE / 2
        return round(middle * (1 + value.real / reach), 1), round(middle * (1 - value.imag / reach), 1)

    largest = max((abs(value) for value in after), default=math.nan)
    told = f"{title}: eigenvalues, the largest magnitude after training {largest:.4g}"
    middle = at(0)[0]
    parts = [
        f'<svg viewBox="0 0 {_SIDE} {_SIDE}" role="img" aria-label="{_text(told)}">',
        f'<line class="axis" x1="0" x2="{_SIDE}" y1="{middle}" y2="{middle}"/>',
        f'<line class="axis" x1="{middle}" x2="{middle}" y1="0" y2="{_SIDE}"/>',
        f'<circle class="circle" cx="{middle}" cy="{middle}" r="{_SIDE / 2 / reach:.1f}"/>',
    ]
    for style, radius, values in (("before", 2.2, before), ("after", 1.6, after)):
        inside = [at(v) for v in values if max(abs(v.real), abs(v.imag)) <= reach]
        parts += [f'<circle class="{style}" cx="{x}" cy="{y}" r="{radius}"/>' for x, y in inside]
    return [*parts, "</svg>"]
