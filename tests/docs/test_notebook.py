"""The notebook in docs shows what its cells give."""

from __future__ import annotations

import nbformat
import pytest

from tests.docs import notebook
from tests.harness.machine import Machine


@pytest.mark.slow
def test_the_notebook_shows_what_its_cells_give(machine: Machine) -> None:
    content = nbformat.read(notebook.NOTEBOOK, as_version=4)
    nbformat.validate(content)
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    recorded = notebook.comparable(content)
    assert notebook.comparable(notebook.executed(machine)) == recorded, "run: python -m tests.docs.notebook --write"
    assert machine.states() == {"done": 4}
    assert "undecided" in recorded
    assert "4 of 4 done" in recorded
    assert str(machine.folder) not in notebook.NOTEBOOK.read_text()
