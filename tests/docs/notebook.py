"""The notebook in docs, executed by a real Jupyter kernel; with --write, what its cells show is recorded.

python -m tests.docs.notebook [--write]
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from tests.harness import notebooks
from tests.harness.machine import Machine

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "python.ipynb"
LANGUAGE = {"name": "python"}
"""What is recorded of the kernel: no version."""


def executed(machine: Machine) -> Any:
    """The notebook, with what its cells show when a kernel executes them in the folder of a machine."""
    client = notebooks.of_notebook(nbformat.read(NOTEBOOK, as_version=4), machine.folder)
    notebooks.execute(client, machine.env)
    notebook = client.nb
    notebook["metadata"]["language_info"] = LANGUAGE
    for cell in notebook["cells"]:
        cell["metadata"] = {}  # times
        for output in cell.get("outputs", ()):
            output.pop("transient", None)
    return notebook


def comparable(notebook: Any) -> str:
    """The text of the outputs without numbers with a fraction, times and ids of runs, which differ between machines,
    and their widths."""
    shown = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    texts = [output.get("text") or output["data"]["text/plain"] for output in shown if output.get("name") != "stderr"]
    text = re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\b\d+:\d\d\b|\b[0-9a-f]{12}\b|\b\d+,?\d* /s", "NUMBER", "\n".join(texts))
    text = re.sub(r"[ ─-]+", " ", text)
    return re.sub(r"NUMBER \d+\b", "NUMBER NUMBER", text)  # steps a second, beside the loss


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        notebook = executed(Machine(Path(folder) / "here"))
    if comparable(notebook) == comparable(nbformat.read(NOTEBOOK, as_version=4)):
        return
    if "--write" not in sys.argv:
        sys.exit(f"{NOTEBOOK} is out of date: python -m tests.docs.notebook --write")
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
