"""`benchmarks/accelerator.py` in its small form, on a CPU: what it measures, and that it goes on after a failure."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "accelerator.py"

if not SCRIPT.is_file():
    pytest.skip("the script is part of a checkout", allow_module_level=True)


@pytest.mark.slow
def test_small_sizes_give_numbers_and_a_failure_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = runpy.run_path(str(SCRIPT))
    main, out = script["main"], tmp_path / "out.json"
    monkeypatch.setitem(main.__globals__, "ROUNDS", 1)
    real = main.__globals__["scan"]

    def scan(task: str, backend: str, small: bool, copy_gb_s: float) -> dict[str, float]:
        if backend == "associative":
            raise MemoryError("too large")
        return real(task, backend, small, copy_gb_s)  # type: ignore[no-any-return]

    monkeypatch.setitem(main.__globals__, "scan", scan)
    main(["--small", "--tasks", "Retrieval", "--out", str(out)])
    document = json.loads(out.read_text())
    assert (document["platform"], document["small"]) == ("cpu", True)
    printed = capsys.readouterr().out
    backends = ("sequential", "chunked", "associative", "published")
    assert list(document["results"]) == [f"scan/Retrieval/{name}" for name in backends]
    for name, row in document["results"].items():
        assert f"{name}: " in printed
        if name.endswith("associative"):
            assert row == {"error": "MemoryError: too large"}
        else:
            assert row["ms"] > 0
