# ruff: noqa: E501 (whole outputs are compared as they are)
"""Reports as documents, LaTeX and HTML, and the same numbers in all formats."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import __main__ as entry
from lrurun import catalog
from lrurun import plan as planning
from lrurun.ledger.store import Ledger
from lrurun.report import detail, latex, render, webpage
from tests import test_speed
from tests.results import fill
from tests.test_report import MINI, build, grid, make_run, make_rung

EVIL = "50 % of a_b & c #1 $x$ ~ ^ \\ {y} é – ± × −3 λ 中 --set [a] *b* -0.5 |x| <y> \"q\" `z` </td><script>alert('1')</script>"

LATEX = r"""% Needs \usepackage{booktabs} and \usepackage{graphicx} in the preamble; \input this file where it belongs.
\begin{table}[htbp]
\centering
\caption{sDigits, profile laptop: four rungs. Which of them matters?}
\label{tab:mini-sDigits-laptop}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{lrrrrrrr}
\toprule
rung & test accuracy & change & p & parameters & steps/s & speed-up & published \\
\midrule
tanh-rnn & 91.00 $\pm$ 0.58 (n=3) & -- & -- & 12,345 & 101 & 1.00$\times$ & 69.9 $\pm$ 0.3 \\
linear-rnn & 95.50 $\pm$ 0.29 (n=3) & +4.50 {[}+2.42, +6.58{]} & 0.013 & 12,345 & 250 & 2.48$\times$ & -- \\
ring-init & 95.50 $\pm$ 0.29 (n=3) & as the rung before & -- & 12,345 & 250 & 2.48$\times$ & -- \\
stable-exponential & 97.50 $\pm$ 0.50 (n=2) & +2.00 {[}$-$0.99, +4.99{]} & 0.094 & 12,345 & 1234 & 12.2$\times$ & chance \\
 & 1 diverged &  &  &  &  &  &  \\
 & 1 failed &  &  &  &  &  &  \\
 & 1 unfinished &  &  &  &  &  &  \\
 & 2 code versions &  &  &  &  &  &  \\
small-phase & -- (n=0) & -- & -- & -- & -- & -- & -- \\
\bottomrule
\end{tabular}}
\par\medskip
\begin{minipage}{\linewidth}\footnotesize\raggedright
Test accuracy in per cent: mean $\pm$ standard error over n finished seeds. Change: against the rung before, in points, with its 95 \% interval (Welch). p: two-sided, Holm-corrected over the table. Steps/s: median; speed-up over tanh-rnn.\par
Smallest difference that 2 seeds a side could have shown: 4.38 points (two-sided 5 \%, power 80 \%, from the spread over seeds seen here, 0.77).\par
One test item is 0.33 points (300 items).\par
Published: Paper, Table 1 (tanh-rnn); Paper, Table 2 (stable-exponential: not above chance). They are of the full task; profile laptop is smaller.\par
These runs come from more than one code version: 0.1.0 abc, 0.2.0 def.\par
Note: a\_note\par
\end{minipage}
\end{table}
\paragraph{Claims}
\begin{itemize}
\item \textbf{supported}: Linear is better. (Paper, 1) linear-rnn 95.50 $\pm$ 0.29 (n=3), tanh-rnn 91.00 $\pm$ 0.58 (n=3); difference +4.50 points {[}+2.97, +6.03{]}, each end a one-sided 95 \% bound; sDigits is not among the tasks of this claim in the paper (sCIFAR): a stand-in.
\item \textbf{undecided}: The ring helps. (Paper, 2) ring-init and linear-rnn are the same runs on this task.
\item \textbf{undecided}: Stable is better. (Paper, 3) stable-exponential 97.50 $\pm$ 0.50 (n=2, 1 diverged), ring-init 95.50 $\pm$ 0.29 (n=3); difference +2.00 points {[}+0.08, +3.92{]}, each end a one-sided 95 \% bound; with the diverged runs counted as chance (10.00): undecided.
\item \textbf{undecided}: Phases do not matter. (Paper, 4) small-phase no score (n=0), tanh-rnn 91.00 $\pm$ 0.58 (n=3); no test.
\end{itemize}"""


def evil():
    """A report whose every text means something else to LaTeX, HTML and Markdown."""
    published = catalog.Published(source=EVIL, value=0.5, note=EVIL)
    ladder = catalog.Ladder(
        name="evil",
        title=EVIL,
        source="s",
        question=EVIL,
        rungs=(make_rung("a", EVIL, sDigits=(published,)), make_rung("b")),
        claims=(catalog.Claim(text=EVIL, source=EVIL, rung="b", than="a"),),
    )
    runs = [make_run("1", "a", 0, 0.5, code=(EVIL, "y")), make_run("2", "b", 0, 0.25)]
    return build(ladder, runs, notes=[EVIL, "*", "[x]"])


def test_latex() -> None:
    assert render.render(build(profile="laptop", notes=["a_note"]), "latex") == LATEX


def test_latex_of_a_ladder_that_branches_and_of_speeds() -> None:
    text = render.render(grid(), "latex")
    assert "rung & on & test accuracy & change & p &" in text
    assert r"free-2 & free-1 & 61.67 $\pm$ 1.20 (n=3) & $-$9.33 {[}$-$13.68, $-$4.99{]} & 0.007 &" in text
    assert r"\paragraph{Claims}" not in text
    text = render.render(test_speed.laptop(), "latex")
    assert r"\label{tab:mini-sDigits-laptop-speed}" in text
    assert r"rung & steps/s & speed-up & device & parameters & published & its speed-up \\" in text
    assert r"lru & 40.0 $\pm$ 10.0 (n=2) & 3.33$\times$ & Xeon & 12,345 & 15.0 (A100) & 7.50$\times$ \\" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % a_b & #1 $x {y}", r"50 \% a\_b \& \#1 \$x \{y\}"),
        ("~^\\", r"\textasciitilde{}\textasciicircum{}\textbackslash{}"),
        ('<|>`"q"', r"\textless{}\textbar{}\textgreater{}\textasciigrave{}''q''"),
        ("--set a-b a--b ---", r"-{}-set a-b a-{}-b -{}-{}-"),
        ("-0.5 [-1, -2] 2026-11-20 r-3", r"$-$0.5 {[}$-$1, $-$2{]} 2026-11-20 r-3"),
        (
            "é Ü ñ č ø – … † 95 ± 1 × γ −3",
            r"\'{e} \"{U} \~{n} \v{c} \o{} -- \dots{} \dag{} 95 $\pm$ 1 $\times$ $\gamma$ $-$3",
        ),
        ("中\x1b[31m\u202e\n", r"\texttt{U+4E2D} "),
        ("*", "{*}"),
    ],
)
def test_latex_prints_what_the_text_says(text: str, expected: str) -> None:
    assert latex.escape(text) == expected


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    everything = " ".join([*latex._SPECIAL, *latex._SIGNS, *latex._MATHS, *"éÜñčåçāăżő中"])
    noted = msgspec.structs.replace(build(MINI), notes=(everything,))
    reports = [evil(), noted, grid(), test_speed.laptop(), build(runs=[])]
    lines = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\usepackage{graphicx}", r"\begin{document}"]
    for number, report in enumerate(reports):
        (tmp_path / f"report{number}.tex").write_text(render.render(report, "latex"), encoding="ascii")
        lines += [rf"\input{{report{number}}}", r"\clearpage"]
    (tmp_path / "document.tex").write_text("\n".join([*lines, r"\end{document}"]))
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "document.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout
    assert "Missing character" not in done.stdout
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout


# HTML


class Page(html.parser.HTMLParser):
    """What a browser finds on a page."""

    EMPTY = ("meta", "br", "polyline", "polygon", "line", "circle")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.texts: dict[str, list[str]] = {}
        """Tag -> the texts of its elements."""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        assert not [name for name in found if name.startswith("on")]
        if "id" in found:
            self.ids.append(str(found["id"]))
        if "href" in found:
            self.links.append(str(found["href"]))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
        if tag == "br":
            self.handle_data("\n")
        if tag not in self.EMPTY:
            self.texts.setdefault(tag, []).append("")
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data
        if {"th", "td"} & set(self.open):
            self.tables[-1][-1][-1] += data


def read(page: str) -> Page:
    """The page, sound: tags closed, anchors unique and there, nothing from elsewhere and nothing that runs."""
    found = Page(page)
    assert len(set(found.ids)) == len(found.ids)
    assert all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in found.tags}
    assert not re.search(r"https?:|url\(|@import", page)
    return found


def details_of(report: Any, curves: dict[str, list[tuple[int, float]]] | None = None) -> dict[str, detail.Detail]:
    found = {}
    for group in render.layout(report).groups:
        for seed, run in enumerate((*group.runs, *group.others)):
            settings = {"kind": group.title, "flag": group.title == "tanh-rnn", "rate": 0.1 + 0.2}
            one = detail.Detail(
                seed=seed,
                state="done",
                step=1000,
                steps=2000,
                score=0.5,
                attempts=2,
                settings=settings | ({"old": 1} if run == "t0" else {}),
                curve=tuple((curves or {}).get(run, ())),
            )
            found.setdefault(run, one)
    return found


def test_html_has_the_table_the_claims_and_the_notes() -> None:
    page = read(render.render(build(profile="laptop", notes=["a note"]), "html"))
    assert page.texts["h1"] == ["sDigits, profile laptop: four rungs"]
    head, *rows = page.tables[0]
    assert head == ["rung", "test accuracy", "change", "p", "parameters", "steps/s", "speed-up", "published"]
    assert rows == [
        ["tanh-rnn\ndense RNN", "91.00 ± 0.58 (n=3)", "–", "–", "12,345", "101", "1.00×", "69.9 ± 0.3"],
        ["linear-rnn\nno nonlinearity", "95.50 ± 0.29 (n=3)", "+4.50 [+2.42, +6.58]", "0.013", "12,345", "250", "2.48×", "–"],
        ["ring-init\na ring", "95.50 ± 0.29 (n=3)", "as the rung before", "–", "12,345", "250", "2.48×", "–"],
        ["stable-exponential\nstable | exponential", "97.50 ± 0.50 (n=2), 1 diverged, 1 failed, 1 unfinished, 2 code versions", "+2.00 [-0.99, +4.99]", "0.094", "12,345", "1234", "12.2×", "chance"],
        ["small-phase\nsmall phases", "– (n=0)", "–", "–", "–", "–", "–", "–"],
    ]  # fmt: skip
    assert page.texts["dt"][1] == "undecided: The ring helps. (Paper, 2)"
    assert page.texts["dd"][1] == "ring-init and linear-rnn are the same runs on this task."
    assert page.texts["li"][-1] == "Note: a note"


def test_every_number_of_ours_leads_to_its_runs() -> None:
    text = render.render(build(), "html", details=details_of(build()))
    page = read(text)
    linked = re.findall(r'<td class="right"><a href="#runs/([^"]+)">([^<]+)</a></td>', text)
    assert [rung for rung, _ in linked[:4]] == ["tanh-rnn"] * 4
    numbers = [cell for row in page.tables[0][1:-1] for cell in row[1:-1] if cell != "–"]
    assert [cell for _, cell in linked] == numbers
    runs = page.tables[1]
    assert runs[:5] == [
        ["run", "seed", "state", "test accuracy %", "step", "attempts"],
        ["tanh-rnn"],
        ["t0", "0", "done", "50.00", "1,000 of 2,000", "2"],
        ["t1", "1", "done", "50.00", "1,000 of 2,000", "2"],
        ["t2", "2", "done", "50.00", "1,000 of 2,000", "2"],
    ]
    # what moves against the rung that it changes; shared runs once; and those that no mean counts
    assert [
        "linear-rnn compared with tanh-rnn: kind = linear-rnn (there tanh-rnn); flag = false (there true); without old"
    ] in runs
    assert ["ring-init has the settings and runs of linear-rnn"] in runs
    assert ["stable-exponential compared with ring-init: kind = stable-exponential (there linear-rnn)"] in runs
    assert [row[0] for row in runs if len(row) == 6] == ["run", "t0", "t1", "t2", "l0", "l1", "l2", "s0", "s1", "s2", "s3", "s4"]  # fmt: skip
    assert "small-phase" not in str(runs)


def test_html_of_speeds_and_of_nothing() -> None:
    page = read(render.render(test_speed.laptop(), "html", details=details_of(test_speed.laptop())))
    assert page.tables[0][3] == [
        "lru\nthe | whole",
        "40.0 ± 10.0 (n=2)",
        "3.33×",
        "Xeon",
        "12,345",
        "15.0 (A100)",
        "7.50×",
    ]
    assert page.tables[1][0][3] == "steps/s"
    assert [row[0] for row in page.tables[1]] == [
        "run",
        "tanh-rnn",
        "t0",
        "t1",
        "t2",
        "lru",
        "l0",
        "l2",
        "l1",
    ]
    assert read(render.render(build(runs=[]), "html")).tables[0][1][1] == "– (n=0)"


def test_html_shows_text_as_text() -> None:
    text = render.render(evil(), "html", details=details_of(evil()))
    page = read(text)
    assert page.texts["h1"] == [f"sDigits: {EVIL}"]
    assert page.tables[0][1][0] == f"a\n{EVIL}"
    assert EVIL in page.texts["dt"][0]
    bad = {"1": details_of(evil())["1"]}
    bad["1"] = msgspec.structs.replace(bad["1"], state="<b>", settings={"<i>": "</th><script>"})
    assert "<b>" in read(render.render(evil(), "html", details=bad)).tables[1][2]


CURVES = {
    "t0": [(10, 0.5), (20, 0.6), (30, 0.7), (40, float("nan"))],
    "t1": [(10, 0.3), (20, 0.6), (40, 0.9)],
    "l0": [(20, 0.8)],
}


def test_learning_curves_are_means_and_ranges_over_seeds() -> None:
    text = render.render(build(), "html", details=details_of(build(), CURVES))
    read(text)
    assert text.count("<svg") == 2
    # x from 34 to 292 over 20 steps, y from 8 to 152 for 80 down to 30 per cent
    first, second = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert 'aria-label="tanh-rnn: validation accuracy 60.00 % at step 20"' in first
    assert re.findall(r">([^<>\n]+)</text>", first) == ["20", "40", "60", "80", "0", "20"]
    # scale from 20 to 80: 40 at 104, 60 at 56, 50 at 80, 30 at 128
    assert '<polygon class="spread" points="163.0,80.0 292.0,56.0 292.0,56.0 163.0,128.0"/>' in first
    assert '<polyline class="mean" points="163.0,104.0 292.0,56.0"/>' in first
    assert "base" not in first
    assert '<polyline class="base" points="163.0,104.0 292.0,56.0"/>' in second
    assert '<circle class="dot" cx="292.0" cy="8.0" r="3"/>' in second
    assert "<svg" not in render.render(build(), "html", details=details_of(build()))


def test_eigenvalues_are_points_in_a_plane() -> None:
    details = details_of(build())
    drawn = {"t0": ((0.5 + 0j, 0.6j), (0.9 + 0j, 1j)), "l0": ((0j,), (1.5j, 3 + 0j, complex(math.nan)))}
    for run, (initial, trained) in drawn.items():
        details[run] = msgspec.structs.replace(details[run], initial=initial, trained=trained)
    text = render.render(build(), "html", details=details)
    read(text)
    first, second = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    # 300 wide for 1.04 to each side: 0.9 at 150 * (1 + 0.9 / 1.04), 0.6i at 150 * (1 - 0.6 / 1.04)
    assert '<circle class="circle" cx="150.0" cy="150.0" r="144.2"/>' in first
    circles = re.compile(r'<circle class="(before|after)" cx="([\d.]+)" cy="([\d.]+)"')
    assert circles.findall(first) == [
        ("before", "222.1", "150.0"), ("before", "150.0", "63.5"),
        ("after", "279.8", "150.0"), ("after", "150.0", "5.8"),
    ]  # fmt: skip
    assert "tanh-rnn: eigenvalues, the largest magnitude after training 1" in first
    # the one at 3 lies outside, the one that is not finite nowhere
    assert circles.findall(second) == [("before", "150.0", "150.0"), ("after", "150.0", "41.8")]
    assert 'r="72.1"' in second
    many = msgspec.structs.replace(details["t0"], initial=(0j,) * 1001, trained=(0.5 + 0j,) * 399)
    text = render.render(build(), "html", details=details | {"t0": many})
    assert (text.count('class="before"'), text.count('class="after"')) == (334 + 1, 399 + 1)
    assert "Eigenvalues" not in render.render(build(), "html", details=details_of(build()))


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    curve = [(step, step / 10_000) for step in range(1, 10_001)]
    points = webpage._over_seeds([curve, curve])
    assert len(points) <= 150
    assert points[-1] == (10_000, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (30.0, 80.0, [20, 40, 60, 80]),
        (97.0, 98.56, [97, 97.5, 98, 98.5, 99]),
        (0.0, 100.0, [0, 50, 100]),
        (50.0, 50.0, [50, 50.0005]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, expected: list[float]) -> None:
    assert webpage._ticks(low, high) == pytest.approx(expected)


def test_the_page_of_a_ledger_tells_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LRURUN_LEDGER", "LRURUN_RUNS", "LRURUN_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "ledger.db", "sDigits", {"tanh-rnn": (0.5, 0.7), "linear-rnn": (0.8,)})
    assert entry.run(["report", "sDigits", "--format", "html", "--out", "page.html"]) == 0
    page = read(Path("page.html").read_text(encoding="utf-8"))
    steps = f"20 of {planning.make('sDigits').rungs[0].config.train.steps:,}"
    assert [row[1:] for row in page.tables[1] if len(row) == 6][1:] == [
        ["0", "done", "50.00", steps, "1"],
        ["1", "done", "70.00", steps, "1"],
        ["0", "done", "80.00", steps, "1"],
    ]
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        details = detail.collect(ledger, [run.id for run in ledger.runs()], "test/accuracy")
    assert sorted((one.seed, one.score) for one in details.values()) == [(0, 0.5), (0, 0.8), (1, 0.7)]
    assert not [path for one in details.values() for path in one.settings if path == "seed"]
    assert (
        "linear-rnn compared with tanh-rnn: model.recurrence.activation = identity (there tanh)" in page.tables[1][4][0]
    )
    labels = [found["aria-label"] for tag, found in page.tags if tag == "svg"]
    assert labels == [
        "tanh-rnn: validation accuracy 60.00 % at step 20",
        "linear-rnn: validation accuracy 80.00 % at step 20",
    ]
    capsys.readouterr()
    assert entry.run(["report", "sDigits", "--format", "html", "--speed"]) == 0
    assert "<svg" not in capsys.readouterr().out


# The same numbers in every format


def from_table(text: str) -> list[list[str]]:
    lines = text.split("\n\n")[1].split("\n")
    starts = [found.start() for found in re.finditer("─+", lines[1])]
    cuts = list(zip(starts, [*starts[1:], None], strict=True))
    return [[line[a:b].strip() for a, b in cuts] for line in (lines[0], *lines[2:])]


def from_markdown(text: str) -> list[list[str]]:
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in (lines[0], *lines[2:])]
    return [[html.unescape(re.sub(r"\\(.)", r"\1", cell)) for cell in row] for row in rows]


def from_latex(text: str) -> list[list[str]]:
    body = re.search(r"\\toprule\n(.*)\\bottomrule", text, re.DOTALL)
    assert body
    rows: list[list[str]] = []
    for line in body[1].replace("\\midrule\n", "").splitlines():
        for tex, sign in ((r"$\pm$", "±"), (r"$\times$", "×"), ("--", "–"), ("$-$", "-"), ("{[}", "["), ("{]}", "]"), (r"\textless{}", "<")):  # fmt: skip
            line = line.replace(tex, sign)
        cells = line.removesuffix(r" \\").split(" & ")
        if cells[0]:
            rows.append(cells)
        else:
            rows[-1] = [f"{known}, {more}" if more else known for known, more in zip(rows[-1], cells, strict=True)]
    return rows


def from_html(text: str) -> list[list[str]]:
    head, *rows = read(text).tables[0]
    return [head, *([row[0].split("\n")[0], *row[1:]] for row in rows)]


TEXTS = {"table": from_table, "md": from_markdown, "latex": from_latex, "html": from_html}


def without_titles(rows: list[list[str]]) -> list[dict[str, str]]:
    names = [name.replace(" [95 %]", "") for name in rows[0]]
    found = [dict(zip(names, row, strict=True)) for row in rows[1:]]
    return [{name: cell for name, cell in row.items() if name != "title"} for row in found]


def number(text: str) -> float | None:
    return None if text in ("", "–") else float(text.replace(",", "").rstrip("×"))


def agrees(printed: str, value: float | None, scale: float = 1) -> None:
    """The printed number is the value, to the digits that are printed."""
    found = number(printed)
    assert (found is None) == (value is None)
    if found is not None and value is not None:
        assert found == pytest.approx(value * scale, abs=0.5000001 * 10 ** -len(printed.rstrip("×").partition(".")[2]))


@pytest.mark.parametrize("report", [build(profile="laptop", notes=["a note"]), grid()], ids=["ladder", "branches"])
def test_all_formats_carry_the_same_numbers(report: Any) -> None:
    assert set(render.FORMATS) == {*TEXTS, "csv", "json"}
    parsed = {name: without_titles(read_back(render.render(report, name))) for name, read_back in TEXTS.items()}  # type: ignore[arg-type]
    assert parsed["md"] == parsed["table"]
    assert parsed["latex"] == parsed["table"]
    assert parsed["html"] == parsed["table"]

    document = json.loads(render.render(report, "json"))
    lines = list(csv.DictReader(io.StringIO(render.render(report, "csv"))))
    assert len(lines) == len(document["rows"]) == len(parsed["table"])
    for shown, row, line in zip(parsed["table"], document["rows"], lines, strict=True):
        for field, cell in line.items():
            if field in (
                "mean",
                "stderr",
                "delta",
                "delta_low",
                "delta_high",
                "p_value",
                "steps_per_second",
                "speedup",
            ):
                assert number(cell) == row[field]
            elif field in ("n", "parameters", "diverged", "failed", "unfinished"):
                assert (int(cell) if cell else None) == row[field]
        assert line["published_value"] == "; ".join(str(one["value"] or "") for one in row["published"])
        assert shown["rung"] == row["rung"] == line["rung"]
        score = re.fullmatch(r"(\S+?)(?: ± (\S+))? \(n=(\d+)\)(.*)", shown["test accuracy"])
        assert score
        agrees(score[1], row["mean"], 100)
        agrees(score[2] or "–", row["stderr"], 100)
        assert int(score[3]) == row["n"]
        for word in ("diverged", "failed", "unfinished"):
            told = re.search(rf"(\d+) {word}", score[4])
            assert (int(told[1]) if told else 0) == row[word]
        if row["same_as_before"]:
            assert shown["change"].startswith("as ")
        else:
            change = re.fullmatch(r"(\S+)(?: \[(\S+), (\S+)\])?", shown["change"])
            assert change
            for cell, field in zip(change.groups("–"), ("delta", "delta_low", "delta_high"), strict=True):
                agrees(cell, row[field], 100)
        if shown["p"] == "<0.001":
            assert row["p_value"] < 0.001
        else:
            agrees(shown["p"], row["p_value"])
        agrees(shown["parameters"], row["parameters"])
        agrees(shown["steps/s"], row["steps_per_second"])
        agrees(shown["speed-up"], row["speedup"])
        for cell, one in zip(shown["published"].split(" / "), row["published"], strict=False):
            value, _, stderr = cell.partition(" ± ")
            agrees(value.replace("chance", "–"), one["value"], 100)
            agrees(stderr, one["stderr"], 100)


def test_all_formats_of_documents_say_the_same_below_the_table() -> None:
    report = build(notes=["a note"])
    page = read(render.render(report, "html"))
    table, markdown = render.render(report, "table"), render.render(report, "md")
    tex = (
        render.render(report, "latex")
        .replace(r"\%", "%")
        .replace(r"$\pm$", "±")
        .replace("{[}", "[")
        .replace("{]}", "]")
    )
    assert len(page.texts["li"]) == len(render.layout(report).foot) == 6
    for sentence in (*page.texts["li"], *page.texts["dd"]):
        for text in (table, markdown, tex):
            assert sentence in text


def test_all_formats_of_speeds_carry_the_same_numbers() -> None:
    report = test_speed.laptop()
    parsed = {name: without_titles(read_back(render.render(report, name))) for name, read_back in TEXTS.items()}  # type: ignore[arg-type]
    assert parsed["md"] == parsed["latex"] == parsed["html"] == parsed["table"]
    lines = list(csv.DictReader(io.StringIO(render.render(report, "csv"))))
    rows = json.loads(render.render(report, "json"))["rows"]
    for shown, row, line in zip(parsed["table"], rows, lines, strict=True):
        for field in ("steps_per_second", "stderr", "speedup"):
            assert number(line[field]) == row[field]
        score = re.fullmatch(r"(\S+?)(?: ± (\S+))? \(n=(\d+)\)", shown["steps/s"])
        assert score
        agrees(score[1], row["steps_per_second"])
        agrees(score[2] or "–", row["stderr"])
        assert int(score[3]) == row["n"] == int(line["n"])
        agrees(shown["speed-up"], row["speedup"])
