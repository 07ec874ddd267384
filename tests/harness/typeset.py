"""Documents that pdfTeX sets: from Debian's packages texlive-latex-base and texlive-latex-recommended.

Tests that need them are skipped where they are missing; with LRURUN_CI set, they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

FEW = 3.0
"""Points by which a box may be too wide: nobody sees them."""


def need(*programs: str) -> None:
    """Skips the test, or fails it in CI, if one of these programs is missing."""
    packages = {"pdflatex": "texlive-latex-base texlive-latex-recommended"}
    packages |= dict.fromkeys(("pdffonts", "pdftotext"), "poppler-utils")
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        text = f"{' and '.join(missing)}: not installed (apt-get install {' '.join(packages[one] for one in missing)})"
        (pytest.fail if os.environ.get("LRURUN_CI") else pytest.skip)(text)


def faults(folder: Path, tables: Mapping[str, str], *, options: str = "") -> list[str]:
    """What is wrong with a document of the class article that has these tables: boxes that are too wide, floats that
    are higher than a page, letters that no font has.

    Raises:
        AssertionError: LaTeX stopped.
    """
    lines = [rf"\documentclass[{options}]{{article}}", r"\usepackage{booktabs}", r"\usepackage{graphicx}"]
    lines.append(r"\begin{document}")
    for number, (name, text) in enumerate(tables.items()):
        (folder / f"table{number}.tex").write_text(text, encoding="ascii")
        lines += [rf"\typeout{{=== {name}}}", rf"\input{{table{number}}}", r"\clearpage"]
    (folder / "document.tex").write_text("\n".join([*lines, r"\end{document}"]))
    return _faults(_compile(folder, "document.tex"))


def faults_of_document(file: Path) -> list[str]:
    """The same of a whole document, with references that lead nowhere and fonts that are not in the PDF beside it.

    Raises:
        AssertionError: LaTeX stopped.
    """
    _compile(file.parent, file.name)
    printed = _compile(file.parent, file.name)  # references are known now
    found = [line for line in printed.splitlines() if re.search(r"LaTeX Warning: .*(undefined|multiply defined)", line)]
    fonts = subprocess.run(["pdffonts", file.with_suffix(".pdf")], capture_output=True, text=True, check=True).stdout
    for font in fonts.splitlines()[2:]:
        if not re.search(r"(CID )?(TrueType|Type 1C?)( \(OT\))? +\S+ +yes", font):
            found.append(f"not embedded, or of dots: {font}")
    return _faults(printed) + found


def _compile(folder: Path, name: str) -> str:
    """What LaTeX prints about a document."""
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", name]
    environment = os.environ | {"max_print_line": "1000"}
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=300, env=environment
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def _faults(printed: str) -> list[str]:
    found, name = [], ""
    for line in printed.splitlines():
        name = line.removeprefix("=== ") if line.startswith("=== ") else name
        wide = re.search(r"Overfull \\hbox \(([\d.]+)pt too wide\)", line)
        if (wide and float(wide[1]) > FEW) or "Float too large" in line or "Missing character" in line:
            found.append(f"{name}: {line}")
    return found
