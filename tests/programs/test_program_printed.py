"""Numbers that programs print: which are read, at which steps, and what of them is refused."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from lrurun.config.fingerprint import fingerprint
from lrurun.config.schema import recorded
from lrurun.programs import printed
from lrurun.programs.printed import Printed, number_of
from lrurun.programs.reports import WrongReport
from tests.harness.machine import Machine
from tests.harness.programs import PYTHON, curves_of, runs_of

SCORES = {"val/acc": r"val_acc[=:] ?(\S+)", "test/acc": r"test_acc[=:] ?(\S+)", "train/loss": r"loss (\S+)"}
STEPS = {"step": r"[Ee]poch (\d+)", **SCORES}


def read(path: Path, text: str | bytes, patterns: dict[str, str]) -> list[tuple[int, dict[str, float]]]:
    """What is read of a program that has ended after it had printed this."""
    path.write_bytes(b"of lrurun: val_acc=7\n" + (text if isinstance(text, bytes) else text.encode()))
    return [(step, values) for step, values in Printed(path, patterns, "of lrurun: ").rows(last=True)]


@pytest.mark.parametrize(
    ("patterns", "text", "rows"),
    [
        (SCORES, "val_acc=0.5\nval_acc=0.6", [(1, {"val/acc": 0.5}), (2, {"val/acc": 0.6})]),
        (SCORES, "val_acc: 0.5 test_acc: 0.4\n\nx\n", [(1, {"val/acc": 0.5, "test/acc": 0.4})]),
        # what is printed once belongs to the step, in whatever order
        (
            SCORES,
            "loss 3\nloss 2\nval_acc=0.5\ntest_acc=0.4\nloss 1\ntest_acc=0.6\nval_acc=0.7",
            [
                *((1, {"train/loss": 3}), (1, {"train/loss": 2}), (1, {"val/acc": 0.5}), (1, {"test/acc": 0.4})),
                *((2, {"train/loss": 1}), (2, {"test/acc": 0.6}), (2, {"val/acc": 0.7})),
            ],
        ),
        # a step counts from its line on
        (
            STEPS,
            "val_acc=0.1\nepoch 3\nloss 2\nval_acc=0.2\nEpoch 3: val_acc=0.3\nval_acc=0.4 epoch 10",
            [
                *((0, {"val/acc": 0.1}), (3, {"train/loss": 2}), (3, {"val/acc": 0.2}), (3, {"val/acc": 0.3})),
                (10, {"val/acc": 0.4}),
            ],
        ),
        # a progress bar, colours, Windows; the last line may be unfinished
        (STEPS, "\repoch 1 loss 2\r\x1b[32mepoch 1 loss 1\x1b[0m", [(1, {"train/loss": 2}), (1, {"train/loss": 1})]),
        (SCORES, "val_acc=0.5\r\nval_acc=0.6\r\n", [(1, {"val/acc": 0.5}), (2, {"val/acc": 0.6})]),
        (SCORES, b"\xff val_acc=0.5\n", [(1, {"val/acc": 0.5})]),
        (SCORES, "x" * 10_000 + "val_acc=0.5", []),
        ({"val/x": "x(=([0-9.]+))?".replace("(=", "(?:=")}, "x\nx=1", [(1, {"val/x": 1})]),
        (SCORES, "", []),
    ],
)
def test_rows_are_read_from_lines(
    tmp_path: Path, patterns: dict[str, str], text: str | bytes, rows: list[tuple[int, dict[str, float]]]
) -> None:
    assert read(tmp_path / "log.txt", text, patterns) == rows


def test_a_line_counts_when_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number must not be read before its last digit is there, however the file is read in blocks."""
    monkeypatch.setattr(printed, "_BLOCK", 7)
    path = tmp_path / "log.txt"
    path.write_text("begin\n")
    source, rows = Printed(path, SCORES, "begin"), []
    for piece in ("val_ac", "c=0.", "93", "1 lr\rval_acc=0.", "5\n", "val_acc=0.7"):
        with path.open("a") as file:
            file.write(piece)
        rows += list(source.rows())
        while source.is_behind:
            rows += list(source.rows())
    assert rows == [(1, {"val/acc": 0.931}), (2, {"val/acc": 0.5})]
    assert list(source.rows(last=True)) == [(3, {"val/acc": 0.7})]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(
            ("0.5", 0.5),
            ("-1e-3", -1e-3),
            ("+2", 2),
            (".5", 0.5),
            ("93.1%", 0.931),
            ("93.1 %,", 0.931),
            ("0.93.", 0.93),
        ),
        *(("1.", 1), ("inf", math.inf), ("-Infinity", -math.inf), ("(none)", None), ("0,93", None), ("1_000", None)),
        *(("", None), ("%", None), ("x%", None), ("5%5", None), ("0x1", None), ("0.5 (best)", None)),
    ],
)
def test_how_numbers_are_written(text: str, number: float | None) -> None:
    assert number_of(text) == number
    assert math.isnan(cast("float", number_of("NaN")))


@pytest.mark.parametrize(
    ("patterns", "text", "message", "hint"),
    [
        (
            SCORES,
            "x\nval_acc=high",
            "line 2 that the program has printed has val/acc = 'high', expected a number",
            "val",
        ),
        (STEPS, "epoch 3\nepoch 2", "line 2 that the program has printed has step 2, after step 3", "read.step"),
        (
            {"step": r"at (\S+)", **SCORES},
            "at 1.5",
            "line 1 that the program has printed has step 1.5, after step 0",
            "read.step",
        ),
        (
            {"step": r"at (\S+)", **SCORES},
            "at inf",
            "line 1 that the program has printed has step inf, after step 0",
            "read.step",
        ),
        (
            {"step": r"at (\S+)", **SCORES},
            "at nan",
            "line 1 that the program has printed has step nan, after step 0",
            "read.step",
        ),
    ],
)
def test_what_is_printed_wrongly_is_refused_with_its_line(
    tmp_path: Path, patterns: dict[str, str], text: str, message: str, hint: str
) -> None:
    with pytest.raises(WrongReport) as caught:
        read(tmp_path / "log.txt", text, patterns)
    assert caught.value.message == message
    assert hint in str(caught.value.hint)


def test_a_search_that_takes_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take longer than the universe has existed; the handler of the signal is as before."""
    monkeypatch.setattr(printed, "MATCH_SECONDS", 0.05)
    before = signal.getsignal(signal.SIGVTALRM)
    with pytest.raises(WrongReport, match=r"^line 1 that .* takes the pattern of val/acc more than 0\.05 s$"):
        read(tmp_path / "log.txt", "a" * 100, {"val/acc": "(a+)+b".replace("(a+)+", "((?:a+)+)")})
    assert signal.getsignal(signal.SIGVTALRM) == before
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_the_number_of_values_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "MOST_VALUES", 3)
    assert len(read(tmp_path / "log.txt", "val_acc=1\n" * 3, SCORES)) == 3
    with pytest.raises(WrongReport, match="the program has printed more than 3 values"):
        read(tmp_path / "log.txt", "val_acc=1\n" * 4, SCORES)


def test_patterns_are_in_the_fingerprint_where_there_are_any() -> None:
    program = {"command": ["python"], "metric": "val/acc"}
    config: dict[str, Any] = {"task": "t", "program": program, "settings": {}, "seed": 0}
    # that of version 1.0
    first = "sha256:6eec3609100987fcbf200ebd77cac9abe46815e5314798934bbe02b9f6141690"
    assert fingerprint(recorded(config)) == first
    config["program"] = program | {"read": {"val/acc": "acc=(.*)"}}
    assert fingerprint(recorded(config)) != first


PRINTS = """\
import os, signal, sys
from pathlib import Path
saved = Path(sys.argv[1]) / "epoch"
first = int(saved.read_text()) + 1 if saved.exists() else 1
for epoch in range(first, 9):
    print(f"epoch {epoch}: loss {1 / epoch}", flush=True)
    print(f"val_acc={epoch / 10} test_acc={epoch / 20}", flush=True)
    saved.write_text(str(epoch))
    if epoch == 5 and first == 1:
        os.kill(os.getppid(), signal.SIGKILL)
        import time
        time.sleep(100)
"""
"""A script that prints its scores, and in its first attempt kills its worker: too early for it to have read all."""


@pytest.mark.slow
def test_a_script_that_prints_is_a_program(machine: Machine) -> None:
    """Without a change to it; the curves of one whose worker is killed are whole. Tuning reads no test scores."""
    (machine.folder / "prints.py").write_text(PRINTS)
    patterns = "\n".join(f"read.{name!r} = {pattern!r}".replace("\\\\", "\\") for name, pattern in STEPS.items())
    (machine.folder / "prints.toml").write_text(
        f'task = "prints"\n[program]\ncommand = [{PYTHON}, "prints.py", "{{run_dir}}"]\n{patterns}\n'
        'metric = "val/acc"\n'
        '[settings]\nlr = 0.1\n[tune.grid]\n"settings.lr" = [0.1]\n[[rung]]\nname = "only"\n'
    )
    machine.run("ladder", "prints.toml", "--seeds", "1", "--jobs", "1")
    [(run, attempts)] = runs_of(machine).values()
    assert [attempt.outcome for attempt in attempts] == ["exited", "done"]
    assert run.result == {"best_step": 8, "val/acc": 0.8, "test/acc": 0.4}
    assert curves_of(machine, run) == {
        "val/acc": [(epoch, epoch / 10) for epoch in range(1, 9)],
        "test/acc": [(epoch, epoch / 20) for epoch in range(1, 9)],
        "train/loss": [(epoch, 1 / epoch) for epoch in range(1, 9)],
    }
    again = machine.run("show", run.id, "--toml").stdout
    (machine.folder / "again.toml").write_text(again)
    assert "nothing to do" in machine.run("ladder", "again.toml", "--seeds", "0,").stderr
    machine.run("ladder", "prints.toml", "--tune", "--seeds", "1", "--jobs", "1")
    [tuned] = machine.json("runs", "--where", "stage=tune and seed=1000")["runs"]
    assert set(tuned["metrics"]) == {"best_step", "val/acc"}
