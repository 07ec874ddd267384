# ruff: noqa: E501 (whole outputs are compared as they are)
"""Reports as documents: LaTeX."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from lrurun import catalog
from lrurun.report import latex, render
from tests import test_speed
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
