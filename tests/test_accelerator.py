"""`benchmarks/accelerator.py` in its small form, on a CPU: what it measures, and that it goes on after a failure."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "accelerator.py"

if not SCRIPT.is_file():
    pytest.skip("the script is part of a checkout", allow_module_level=True)


@pytest.mark.slow
def test_small_sizes_give_numbers_and_a_failure_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = runpy.run_path(str(SCRIPT))
    main, out = script["main"], tmp_path / "out.json"
    monkeypatch.setitem(main.__globals__["SMALL"], "model.width", 6)
    monkeypatch.setitem(main.__globals__, "ROUNDS", 1)
    real = main.__globals__["step"]

    def step(task: str, rung: str, precision: str, small: bool) -> dict[str, float]:
        if precision != "tf32":
            raise MemoryError("too large")
        return real(task, rung, precision, small)  # type: ignore[no-any-return]

    monkeypatch.setitem(main.__globals__, "step", step)
    main(["--small", "--only", "scan", "step", "--tasks", "Retrieval", "--out", str(out)])
    document = json.loads(out.read_text())
    assert (document["platform"], document["small"]) == ("cpu", True)
    results = document["results"]
    printed = capsys.readouterr().out
    assert list(results) == [
        *(f"scan/Retrieval/{name}" for name in ("sequential", "chunked", "associative", "published")),
        *(f"step/Retrieval/gamma-norm/{precision}" for precision in ("tf32", "bf16", "float32")),
        "step/Retrieval/tanh-rnn/tf32",
    ]
    for name, row in results.items():
        assert f"{name}: " in printed
        if name.startswith("scan/"):
            assert row["ms"] > 0
        elif name.endswith("tf32"):
            assert row["steps_per_second"] > 0
        else:
            assert row == {"error": "MemoryError: too large"}
    assert results["step/Retrieval/gamma-norm/tf32"]["published"] == 5.7
