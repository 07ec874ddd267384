"""Notebooks that are executed by a real Jupyter kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def client(cells: list[str], folder: Path) -> NotebookClient:
    """A client that executes these cells, in a kernel of its own that begins in the folder."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return of_notebook(notebook, folder)


def of_notebook(notebook: Any, folder: Path) -> NotebookClient:
    """A client that executes a notebook, in a kernel of its own that begins in the folder."""
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources, coalesce_streams=True)


def kernel_process(client: NotebookClient) -> int | None:
    """The process of the client's kernel; None before it has started."""
    process = getattr(client.km, "provisioner", None)
    return None if process is None else getattr(process, "pid", None)


def execute(client: NotebookClient, env: dict[str, str] | None = None) -> list[list[dict[str, Any]]]:
    """The outputs of each code cell. Raises as `NotebookClient.execute`."""
    client.execute(env=dict(os.environ) if env is None else env)
    return [cell["outputs"] for cell in client.nb["cells"] if cell["cell_type"] == "code"]
