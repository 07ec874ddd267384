"""`lrurun.ladder`: plans, trains, reports and draws what the commands do, and raises what ends them with a code."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import lrurun
from lrurun import errors
from lrurun.errors import LedgerError, LrurunError, NotFoundError, Stopped, UnfinishedError, UsageError
from lrurun.runner.signals import Signals
from lrurun.runner.supervisor import Supervisor
from lrurun.session.ladder import LadderSession
from tests.harness.machine import FINISHED, Machine, start_python, training, wait_for

LONG_SETS = {"train.steps": 1000, "train.eval_every": 100, "execution.checkpoint_seconds": 0.4}
"""The values of `LONG` of `tests.harness.machine`."""


def smoke(machine: Machine, **arguments: Any) -> LadderSession:
    arguments = {
        "profile": "smoke",
        "ledger": machine.ledger,
        "data_dir": os.environ["XDG_DATA_HOME"] + "/lrurun",
    } | arguments
    return lrurun.ladder("sDigits", **arguments)


def test_a_finished_ladder(finished: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    ladder = smoke(finished, rungs=list(FINISHED))
    plan = ladder.plan()
    expected = finished.json(
        "plan", "sDigits", "--profile", "smoke", *(word for rung in FINISHED for word in ("--rung", rung))
    )
    assert [row.rung for row in plan] == [row["rung"] for row in expected["rungs"]] == list(FINISHED)
    assert (plan.plan.runs_left, plan.plan.instance.short_name, plan.plan.eta_seconds) == (
        0,
        expected["name"],
        expected["eta_seconds"],
    )
    assert plan.to_pandas()["runs_done"].tolist() == [row["runs_done"] for row in expected["rungs"]]
    assert "0 runs left" in repr(plan)
    assert "<td>gamma-norm</td>" in plan._repr_html_()
    assert ladder.train(jobs=1) is None
    assert "nothing to do: every run of this ladder is finished" in capsys.readouterr().err
    report = ladder.report()
    printed = finished.json(
        "report", "sDigits", "--profile", "smoke", *(word for rung in FINISHED for word in ("--rung", rung))
    )
    assert report.to_pandas()["mean"].tolist() == [row["mean"] for row in printed["rows"]]
    assert report.rows[-1].comparison.difference == printed["rows"][-1]["comparison"]["difference"]
    assert [claim.text for claim in report.claims] == [claim["text"] for claim in printed["claims"]]
    assert "verdict" in report.claims.to_polars().columns
    assert report.cautions[0] == "profile smoke shows that everything runs, its scores mean nothing"
    assert report._repr_html_().startswith("<iframe")
    for figure in (ladder.plot(), ladder.plot("curves", metrics="train/loss", width="page", plain=True)):
        data, metadata = figure._repr_png_()
        assert data.startswith(b"\x89PNG")
        assert metadata["width"] > 100
        assert figure.axes


def test_names_and_values_are_those_of_the_command(finished: Machine) -> None:
    """The same request in both is the same instance, however its values are written."""
    for sets in ({"optim.lr": 0.016}, {"optim.lr": np.float32(0.25).item()}, {"optim.lr": np.float64(0.016)}):
        ladder = smoke(finished, set=sets, seeds=np.int64(3))
        words = ("--set", f"optim.lr={float(sets['optim.lr'])}", "--seeds", "3")
        printed = finished.json("plan", "sDigits", "--profile", "smoke", *words)
        assert (ladder.plan().plan.instance.short_name, ladder.plan().plan.instance.set) == (
            printed["name"],
            printed["set"],
        )
        assert ladder.plan().plan.seeds == [0, 1, 2]
    changed = smoke(finished, set={"optim.lr": 0.016}, name="mine").plan().plan
    assert changed.instance.short_name == "mine"
    assert smoke(finished, seeds=[4]).plan().plan.seeds == [4]
    assert smoke(finished, seeds=(0, 4, 7)).plan().plan.seeds == [0, 4, 7]
    assert smoke(finished, decide=True, max_seeds=12).plan().plan.design["max_seeds"] == 12


of_digits = partial(lrurun.ladder, "sDigits")
here_smoke = partial(of_digits, profile="smoke")


@pytest.mark.parametrize(
    ("call", "error", "message", "hint"),
    [
        (lambda: lrurun.ladder("sDigit"), UsageError, "unknown task 'sDigit'", "'sDigits'"),
        (lambda: lrurun.ladder(3), UsageError, "task: expected a task or a path, found int", "as in ladder("),
        (lambda: of_digits(profile="smok"), UsageError, "unknown profile", "smoke"),
        (lambda: of_digits(ladder="lruu"), UsageError, "unknown ladder 'lruu'", "'lru'"),
        (
            lambda: lrurun.ladder("sDigits", set=["optim.lr=1"]),
            UsageError,
            "set: expected a mapping, found list",
            "as in",
        ),
        (
            lambda: of_digits(set={"optim.lrr": 1}),
            UsageError,
            "set optim.lrr: unknown name",
            "did you mean 'optim.lr'?",
        ),
        (lambda: of_digits(set={3: 1}), UsageError, "set: expected text, found int", "as in"),
        (lambda: of_digits(set={"optim.lr": {}}), UsageError, "optim.lr", ""),
        (lambda: of_digits(set={"optim.lr": object()}), UsageError, "optim.lr", ""),
        (lambda: of_digits(seeds="3"), UsageError, "seeds: expected a number or a list", "[0, 4, 7]"),
        (lambda: of_digits(seeds=[]), UsageError, "found an empty list", "[0, 4, 7]"),
        (lambda: of_digits(seeds=0), UsageError, "seeds: expected a whole number from 1", "seeds=4"),
        (lambda: of_digits(seeds=True), UsageError, "seeds: expected a whole number, found bool", ""),
        (lambda: of_digits(seeds=[1.5]), UsageError, "seeds: expected a whole number, found float", ""),
        (lambda: of_digits(seeds=[1, 1]), UsageError, "seeds: 1 is named twice", "[0, 4, 7]"),
        (lambda: of_digits(seeds=[1000]), UsageError, "seeds: expected a whole number from 0 to 999", ""),
        (lambda: of_digits(set={"seed": 3}), UsageError, "set seed: seeds are not set", "use seeds=[0, 1, 2]"),
        (lambda: lrurun.ladder("study:ring"), UsageError, "study:ring is a study", 'lrurun.study("ring") computes'),
        (lambda: of_digits(tune="yes"), UsageError, "tune: expected True or False, found str", "as in"),
        (lambda: of_digits(rungs="gamma"), UsageError, "gamma", "gamma-norm"),
        (lambda: of_digits(rungs=5), UsageError, "rungs: expected a text, or a list of texts", "as in"),
        (lambda: of_digits(decide=True, seeds=3), UsageError, "decide and seeds or rungs exclude", "12"),
        (lambda: of_digits(name=3), UsageError, "name: expected text, found int", "as in"),
        (lambda: of_digits(name="3x"), UsageError, "name '3x': expected a letter", "npDigits-wide"),
        (lambda: of_digits(name="cafe").plan(), UsageError, "name cafe: could be the beginning of an id", "cafe-runs"),
        (lambda: of_digits(max_seeds=12), UsageError, "max_seeds: belongs to decide", "decide=True"),
        (lambda: of_digits(decide=True, max_seeds=13), UsageError, "max_seeds 13: expected 12 or 20", ""),
        (
            lambda: lrurun.ladder("sDigits", ledger=3),
            UsageError,
            "ledger: expected a path or a URL, found int",
            "as in",
        ),
        (lambda: of_digits(runs_dir=b"x"), UsageError, "runs_dir: expected a path or a URL", "as in"),
        (lambda: of_digits(files="mine.py"), UsageError, "files: expected a list of paths", "as in"),
        (lambda: of_digits(files=["no.py"]), UsageError, "files: there is no file no.py", "relative"),
        (
            lambda: here_smoke().train(jobs=0),
            UsageError,
            "jobs: expected a whole",
            "jobs=4",
        ),
        (
            lambda: here_smoke().train(pack=65),
            UsageError,
            "pack: expected a whole",
            "pack=4",
        ),
        (
            lambda: here_smoke().train(on="slrm"),
            UsageError,
            "on: there is no executor 'slrm'",
            "'slurm'",
        ),
        (lambda: here_smoke().train(on=3), UsageError, "on: expected text", "slurm"),
        (lambda: here_smoke().train(time_limit="soon"), UsageError, "a duration", "45m"),
        (lambda: here_smoke().train(time_limit=-3), UsageError, "a duration", "45m"),
        (
            lambda: here_smoke().plot("ladders"),
            UsageError,
            "kind: unknown figure",
            "ladder",
        ),
        (lambda: here_smoke().plot(metrics="x"), UsageError, "metrics: is for", "leave"),
        (lambda: here_smoke().plot(rungs="x"), UsageError, "rungs: is for items", "leave"),
        (lambda: here_smoke().plot(examples=2), UsageError, "examples: is for", "leave"),
        (
            lambda: here_smoke().plot(width="wide"),
            UsageError,
            "width: expected column",
            "",
        ),
        (lambda: here_smoke().report(), NotFoundError, "nothing of it is in", "train()"),
        (lambda: here_smoke().plot(), NotFoundError, "nothing of it is in", "train()"),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    call: Any, error: type[LrurunError], message: str, hint: str, here: Machine
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == error.exit_code
    assert here.files() == []


def test_what_ends_the_command_with_a_code_is_an_exception(
    here: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ladder = lrurun.ladder("sDigits", profile="smoke", rungs="tanh-rnn", seeds=2)

    def fail(self: Supervisor) -> None:
        while (held := self.ledger.hold(self.instance.key, self.owner, environment={})) is not None:
            state = "failed" if held.run.seed else "done"
            self.ledger.finish(held, state, result={"test/accuracy": 0.5}, error="no luck" if held.run.seed else None)

    monkeypatch.setattr(Supervisor, "_loop", fail)
    monkeypatch.setattr("lrurun.session.preparing.prepare_data", lambda *_: None)
    with pytest.raises(
        UnfinishedError, match=r"^1 run not finished: run \w+ \(tanh-rnn, seed 1\): no luck; "
    ) as failed:
        ladder.train()
    assert (failed.value.exit_code, failed.value.hint) == (3, "call train() again to retry them")
    assert ladder.plan()[0].runs_done == 1

    def interrupt(self: Supervisor) -> None:
        signal.raise_signal(signal.SIGINT)
        self.signals.check()

    monkeypatch.setattr(Supervisor, "_loop", interrupt)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped) as stopped:
        ladder.train()
    assert (stopped.value.exit_code, stopped.value.number) == (130, signal.SIGINT)
    assert str(stopped.value) == "stopped by ^C with 1 of 2 runs remaining; the same call continues"
    assert signal.getsignal(signal.SIGINT) is handler
    assert not issubclass(Stopped, LrurunError), "who goes on after an error does not go on after ^C"

    def time_is_over(self: Supervisor) -> None:
        self.signals._deadline = -math.inf
        self.signals.check()

    monkeypatch.setattr(Supervisor, "_loop", time_is_over)
    with pytest.raises(Stopped, match=r"^stopped by the time limit of 0:20 with 1 of 2 runs remaining; ") as stopped:
        ladder.train(time_limit=20)
    assert stopped.value.exit_code == 143
    assert "same command" not in capsys.readouterr().err
    codes = {
        error.exit_code for error in vars(errors).values() if isinstance(error, type) and hasattr(error, "exit_code")
    }
    assert codes >= {1, 2, 3, 4, 5}
    here.ledger.write_bytes(b"no ledger" * 100)
    with pytest.raises(LrurunError) as refused:
        ladder.train()
    assert refused.value.exit_code == LedgerError.exit_code


def test_in_another_thread_no_signal_is_recorded() -> None:
    ends: list[object] = []

    def record() -> None:
        try:
            with Signals(1e-9).recorded() as signals:
                signals.check()
        except BaseException as error:
            ends.append(error)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert [str(end) for end in ends] == ["the time limit of 0:00"]
    assert signal.getsignal(signal.SIGINT) is before


SCRIPT = """
import json, sys
import lrurun

ladder = lrurun.ladder("sDigits", profile="smoke", **{arguments!r})
ladder.train(jobs=1)
report = ladder.report()
print(json.dumps([row.n for row in report]))
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("jax", "jaxlib", "flax", "typer"))
assert not loaded, loaded
assert not [name for name in sys.modules if name.startswith(("lrurun.commands", "lrurun.cli"))]
"""


def test_training_needs_neither_commands_nor_jax(machine: Machine) -> None:
    script = SCRIPT.format(arguments={"rungs": ["tanh-rnn"], "seeds": 1})
    process = start_python(machine, script)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out) == [1]
    assert "tanh-rnn seed 0" in err


@pytest.mark.slow
def test_a_killed_process_loses_nothing(machine: Machine, long_history: Any) -> None:
    """The workers exit with it, and the same script continues to the same bits."""
    machine.env["XLA_FLAGS"] = ""
    script = SCRIPT.format(arguments={"rungs": ["ring-init", "gamma-norm"], "seeds": 1, "set": LONG_SETS})
    process = start_python(machine, script)
    wait_for(lambda: training(machine, step=60)() and machine.committed())
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    wait_for(lambda: "running" not in machine.states(), 30)
    again = start_python(machine, script)
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert json.loads(out) == [1, 1]
    assert machine.history() == {key: value for key, value in long_history.items() if key[2] == 0}
    assert max(len(attempts) for attempts in machine.attempts().values()) == 2


GUARDED = """
import sys
from lrurun.errors import Stopped

try:
    exec({script!r})
except Stopped as stopped:
    print(stopped)
    sys.exit(stopped.exit_code)
"""


@pytest.mark.slow
def test_signals_to_a_script_save_its_runs(machine: Machine) -> None:
    machine.env["XLA_FLAGS"] = ""
    sets = LONG_SETS | {"train.steps": 200_000}
    script = SCRIPT.format(arguments={"rungs": ["gamma-norm"], "seeds": 1, "set": sets})
    for number, code, cause in ((signal.SIGINT, 130, "^C"), (signal.SIGTERM, 143, "SIGTERM")):
        process = start_python(machine, GUARDED.format(script=script))
        wait_for(training(machine))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, err
        assert out == f"stopped by {cause} with 1 of 1 run remaining; the same call continues\n"
        assert machine.states() == {"interrupted": 1}
