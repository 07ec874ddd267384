"""The notebook in docs: runs its cells in plain Python, and with --write records what they show.

python -m tests.docs.notebook [--write]
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "reading.ipynb"
LADDER = ("ladder", "sDigits", "--profile", "smoke", "--rung", "ring-init", "--rung", "gamma-norm", "--seeds", "2")
"""What the notebook reads, as its first cell says."""


def outputs(cells: list[dict[str, Any]], folder: Path) -> list[list[dict[str, Any]]]:
    """What each code cell shows, run one after the other in a folder."""
    names: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        return [_outputs("".join(cell["source"]), names, n) for n, cell in enumerate(_code(cells), 1)]
    finally:
        os.chdir(before)


def _code(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    *statements, last = ast.parse(source).body
    printed = io.StringIO()
    result = None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(statements, []), "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            result = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(compile(ast.Module([last], []), "cell", "exec"), names)
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        shown.append({"name": "stdout", "output_type": "stream", "text": text})
    if result is not None:
        data = {"text/plain": repr(result).splitlines(keepends=True)}
        if hasattr(result, "_repr_html_"):
            data["text/html"] = result._repr_html_().splitlines(keepends=True)
        shown.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return shown


def comparable(shown: list[list[dict[str, Any]]]) -> str:
    """The text of outputs without numbers with a fraction, which differ between machines, and their widths."""
    texts = ["".join(one.get("text") or one["data"]["text/plain"]) for cell in shown for one in cell]
    return re.sub(r" +", " ", re.sub(r"-?\d+\.\d+(e[+-]?\d+)?", "NUMBER", "\n".join(texts)))


def main() -> None:
    from tests.harness.machine import Machine

    content = json.loads(NOTEBOOK.read_text())
    with tempfile.TemporaryDirectory() as folder:
        Machine(Path(folder)).run(*LADDER)
        found = outputs(content["cells"], Path(folder))
    recorded = [cell["outputs"] for cell in _code(content["cells"])]
    if comparable(found) == comparable(recorded):
        return
    if "--write" not in sys.argv:
        sys.exit(f"{NOTEBOOK} is out of date: python -m tests.docs.notebook --write")
    for number, (cell, shown) in enumerate(zip(_code(content["cells"]), found, strict=True), 1):
        cell |= {"outputs": shown, "execution_count": number}
    NOTEBOOK.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
