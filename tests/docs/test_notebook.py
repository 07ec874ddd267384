"""The notebook in docs shows what its cells give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs import notebook
from tests.harness.machine import Machine


@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_give(tmp_path: Path) -> None:
    content = json.loads(notebook.NOTEBOOK.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    machine = Machine(tmp_path)
    machine.run(*notebook.LADDER, "--jobs", "1")
    assert " ".join(("lrurun", *notebook.LADDER)) in "".join(content["cells"][0]["source"])
    shown = notebook.outputs(content["cells"], tmp_path)
    recorded = notebook.comparable([cell["outputs"] for cell in cells])
    assert notebook.comparable(shown) == recorded, "run: python -m tests.docs.notebook --write"
    assert "undecided" in recorded
