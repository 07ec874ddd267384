# ruff: noqa: E501 (whole outputs are compared as they are)
"""Reports as LaTeX: the whole table, signs and accents, and that it compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from lrurun.report import formats
from lrurun.report.formats import latex
from lrurun.report.rung_runs import Note
from tests.harness import speeds
from tests.harness.reports import MINI, build, evil, grid

LATEX = r"""% Needs \usepackage{booktabs} and \usepackage{graphicx} in the preamble; \input this file where it belongs.
% Helps: linear-rnn scores 4.50 points more than tanh-rnn (p = 0.013).
% Undecided: stable-exponential against ring-init (between $-$152.65 and +98.32 points; stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is better than one of ring-init in 67 \% of pairs, though the mean is worse).
% Provisional: all verdicts. With fewer than 12 seeds a verdict assumes that no seed fails.
% Not compared, because the runs are the same: ring-init against linear-rnn.
% Not run: small-phase against stable-exponential.
% Of 4 claims (sDigits stands in for the tasks of 1 of them): 1 supported, 1 undecided, 1 not run, 1 not comparable (same runs); all provisional.
\begin{table}[htbp]
\centering
\caption{four rungs on sDigits, profile laptop, without -{}-tune. Which of them matters?}
\label{tab:mini-sDigits-laptop}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{llrrrrrrr}
\toprule
rung & test accuracy & difference {[}95 \%{]} & p & learn & better {[}95 \%{]} & parameters & steps/s & published \\
\midrule
tanh-rnn & 91.00 $\pm$ 0.58 (n=3) & -- & -- & 3 of 3 & -- & 12,345 & 101 & 69.9 $\pm$ 0.3 \\
linear-rnn & 95.50 $\pm$ 0.29 (n=3) & +4.50 {[}+2.42, +6.58{]} & 0.013 & 3 of 3 & 100 \% {[}29, 100{]} & 12,345 & 250 & -- \\
ring-init & 95.50 $\pm$ 0.29 (n=3) & as linear-rnn & -- & 3 of 3 & -- & 12,345 & 250 & -- \\
stable-exponential & 97.50 $\pm$ 0.50 (n=2) & $-$27.17 {[}$-$152.65, +98.32{]} & 0.450 & 2 of 3 & 67 \% {[}0, 100{]} & 12,345 & 1234 & chance \\
 & 1 diverged &  &  &  &  &  &  &  \\
 & 1 failed &  &  &  &  &  &  &  \\
 & 1 unfinished &  &  &  &  &  &  &  \\
 & 2 code versions &  &  &  &  &  &  &  \\
small-phase & -- (n=0) & -- & -- & -- & -- & -- & -- & -- \\
\bottomrule
\end{tabular}}
\par\medskip
\begin{minipage}{\linewidth}\footnotesize\raggedright
Test accuracy in per cent: mean $\pm$ standard error over n finished seeds. Difference: to the previous rung, in points, with its 95 \% interval (Welch), not corrected. p: two-sided, of means (Welch), corrected by Holm's method over all differences and claims with results. Learn: seeds better than chance. Better: the chance that a run scores better than one of the base, with its 95 \% interval. Steps/s: median.\par
Diverged runs rank below all others in p and verdicts, and count in differences with the score of chance, 10.00; the means of the rungs are without them.\par
A seed learns if its score is better than 15.20. Rate at which seeds fail to learn, 95 \% upper bound: 63 \% (tanh-rnn, linear-rnn); 86 \% (stable-exponential).\par
One test item is 0.33 points (300 items).\par
Published: Paper, Table 1 (tanh-rnn); Paper, Table 2 (stable-exponential: not above chance). They are for the plain recipe, not for profile laptop.\par
These runs come from more than one code version: 0.1.0 abc; 0.2.0 def.\par
Note: a\_note\par
\end{minipage}
\end{table}
% supported (stand-in task): Linear is better. (Paper, 1) provisional (3 seeds); linear-rnn 95.50 $\pm$ 0.29 (n=3), tanh-rnn 91.00 $\pm$ 0.58 (n=3); difference +4.50 points {[}+2.42, +6.58{]}; chance of improvement 100 \% {[}29, 100{]}; p = 0.013; sDigits stands in for the paper's tasks of this claim (sCIFAR).
% not comparable: The ring helps. (Paper, 2) ring-init and linear-rnn are the same runs on this task.
% undecided: Stable is better. (Paper, 3) provisional (3 seeds); stable-exponential learns in 2 of 3 seeds; a run of stable-exponential is better than one of ring-init in 67 \% of pairs, though the mean is worse; stable-exponential 68.33 $\pm$ 29.17 (n=3, 1 diverged, counted as chance, 10.00), ring-init 95.50 $\pm$ 0.29 (n=3); difference $-$27.17 points {[}$-$152.65, +98.32{]}; chance of improvement 67 \% {[}0, 100{]}; p = 0.450.
% not run: Phases do not matter. (Paper, 4) no finished runs of small-phase."""


def test_the_table_alone_is_the_one_of_the_document() -> None:
    alone = formats.render(build(profile="laptop"), "latex", table_only=True)
    assert alone.startswith(r"\begin{tabular}{llrrrrrrr}" + "\n\\toprule\n")
    assert alone.endswith("\\bottomrule\n\\end{tabular}")
    assert alone in LATEX


def test_latex() -> None:
    assert formats.render(build(profile="laptop", notes=["a_note"]), "latex") == LATEX


def test_latex_of_a_ladder_that_branches_and_of_speeds() -> None:
    text = formats.render(grid(), "latex")
    assert "rung & base & test accuracy & difference {[}95 \\%{]} & p &" in text
    assert r"free-2 & free-1 & 61.67 $\pm$ 1.20 (n=3) & $-$9.33 {[}$-$13.68, $-$4.99{]} & 0.007 &" in text
    text = formats.render(speeds.laptop(), "latex")
    assert r"\label{tab:mini-sDigits-laptop-speed}" in text
    assert r"rung & steps/s & speed-up & device & parameters & published & its speed-up \\" in text
    assert (
        r"lru & 40.0 $\pm$ 10.0 (n=2) & 3.33$\times$ {[}2.14, 5.00{]} & Xeon & 12,345 & 15.0 (A100) & 7.50$\times$ \\"
        in text
    )


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
    noted = msgspec.structs.replace(build(MINI), notes=(Note(everything),))
    reports = [evil(), noted, grid(), speeds.laptop(), build(runs=[])]
    lines = [r"\documentclass{article}", r"\usepackage{booktabs}", r"\usepackage{graphicx}", r"\begin{document}"]
    for number, report in enumerate(reports):
        (tmp_path / f"report{number}.tex").write_text(formats.render(report, "latex"), encoding="ascii")
        lines += [rf"\input{{report{number}}}", r"\clearpage"]
    (tmp_path / "document.tex").write_text("\n".join([*lines, r"\end{document}"]))
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "document.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout
    assert "Missing character" not in done.stdout
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout
