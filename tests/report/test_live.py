"""The progress of a preparation and of a ladder, in a pipe and in a terminal."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from lrurun import console
from lrurun.ledger.ledger import Ledger
from lrurun.report.live import views
from lrurun.report.live.progress import (
    LadderProgress,
    collect,
    collect_sweep,
    columns,
    running_lines,
    so_far,
    summary,
    view,
    view_of,
)
from tests.harness.results import fill
from tests.harness.stores import key, ledger, path, take, want

__all__ = ["key", "ledger", "path"]  # fixtures


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds, which a test sets."""
    now = [100.0]
    monkeypatch.setattr(views.time, "monotonic", lambda: now[0])
    return now


def test_a_pipe_gets_a_line_for_every_step_and_one_every_30_seconds(monkeypatch, clock):
    said: list[str] = []
    monkeypatch.setattr(console, "is_terminal", lambda: False)
    monkeypatch.setattr(console, "say", said.append)
    with views.PreparationView() as preparing:
        for done in range(1000):
            clock[0] += 0.1
            preparing.update("generating images", done, 1000)
        preparing.update("computing digests", 0, None)
        clock[0] += 31
        preparing.update("computing digests", 0, None)
    assert said == [
        "generating images",
        "generating images: 30%",
        "generating images: 60%",
        "generating images: 90%",
        "computing digests",
        "computing digests",
    ]


def test_a_merge_is_silent_at_first_and_between_two_lines(monkeypatch, clock):
    said: list[str] = []
    monkeypatch.setattr(console, "is_terminal", lambda: False)
    monkeypatch.setattr(console, "say", said.append)
    with views.PreparationView(pause=2.0) as merging:
        for what in ("unpacking", "adding", "writing"):
            for done in range(25):
                merging.update(what, done, 25)
                clock[0] += 0.125
    assert said == ["unpacking: 64%", "adding: 28%", "adding: 92%", "writing: 56%"]
    screen = io.StringIO()
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setattr(console, "err", lambda: Console(file=screen, force_terminal=True, width=80, color_system=None))
    with views.PreparationView(pause=2.0) as merging:
        merging.update("unpacking", 1, 4)
        assert screen.getvalue() == ""
        clock[0] += 2
        merging.update("adding", 1, 4)
    assert "25%" in screen.getvalue()
    assert "unpacking" not in screen.getvalue()


@pytest.mark.parametrize("width", [44, 100])
def test_a_terminal_shows_a_line_a_step_that_fits(monkeypatch, width):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setattr(console, "err", lambda: terminal)
    with views.PreparationView() as preparing:
        preparing.update("counting new_aan_pairs.train.tsv [bold]", 1, 3)  # text, not markup
        preparing.update("counting new_aan_pairs.train.tsv [bold]", 2, 3)
        preparing.update("encoding", 1, 4)
        preparing.update("computing digests", 0, None)
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    last = [line.rstrip() for line in re.split(r"[\r\n]+", drawn) if line.strip()][-3:]
    assert all(len(line) <= width for line in last)
    assert [line.split()[0] for line in last] == ["counting", "encoding", "computing"]
    assert "100%" in last[0], "a finished step shows 100%"
    assert "100%" in last[1]
    assert "%" not in last[2]
    assert ("[bold]" in last[0]) == (width == 100)


def test_a_ladder_in_a_pipe_gets_a_line_for_every_change(monkeypatch, clock, ledger, key):
    said: list[str] = []
    monkeypatch.setattr(console, "is_terminal", lambda: False)
    monkeypatch.setattr(console, "say", lambda line: said.append(line.partition(" ")[2]))
    ledger.enqueue(key, [want("dense", seed, seed) for seed in range(3)])
    first = take(ledger, key)
    ladder, view = ledger.ladder(key), views.LadderView()

    def lines() -> list[str]:
        said.clear()
        view.update(ledger, ladder)
        return [re.sub(r" \(\w+\)", "", line) for line in said]

    assert lines() == ["dense seed 0: running"], "it began before"
    assert lines() == []
    ledger.finish(first, "interrupted", step=7)
    second = take(ledger, key)
    ledger.finish(second, "done", result={"val/accuracy": 0.5}, step=100)
    assert lines() == ["dense seed 0: interrupted at step 7 of 100", "dense seed 1: done, val 50.00 %"]
    ledger.requeue([first.run.id])
    ledger.event("note", "text", run=first.run.id)
    assert lines() == ["dense seed 0: queued at step 7 of 100"]
    third = take(ledger, key)
    assert lines() == [f"dense seed {third.run.seed}: running"]
    ledger.finish(third, "failed", step=0, reason="no memory\nTraceback")
    ledger.requeue([third.run.id])
    assert lines() == [f"dense seed {third.run.seed}: queued again, after 1 failed attempt: no memory"]
    read: list[object] = []
    monkeypatch.setattr(ledger, "runs", lambda *_, **options: read.append(options["ids"]) or [])
    assert lines() == []
    assert not read, "nothing has changed"
    clock[0] += 31
    assert lines() == ["1 of 3 done, 2 queued"]


def test_a_terminal_draws_a_large_ladder_less_often_but_changes_at_once(monkeypatch, clock, ledger, key):
    drawn: list[float] = []

    def slow(*_: object) -> None:
        drawn.append(clock[0])
        clock[0] += 0.1

    monkeypatch.setattr(console, "is_terminal", lambda: True)
    monkeypatch.setattr(views, "collect", slow)
    monkeypatch.setattr(views.LadderView, "_draw", lambda *_: None)
    ledger.enqueue(key, [want("dense")])
    ladder, view = ledger.ladder(key), views.LadderView()
    for second in range(5):
        if second == 1:
            take(ledger, key)
        clock[0] = 100.0 + second
        view.update(ledger, ladder)
    assert drawn == [100.0, 101.0, 104.0]


def test_narrow_terminals_get_fewer_columns(path: Path) -> None:
    fill(path, "sDigits", {"stable-exponential": [0.5, 0.6], "tanh-rnn": [0.7]}, profile="smoke")
    with Ledger.open(path) as ledger:
        progress = collect(ledger, ledger.ladders()[0])
    for width in (40, 48, 60, 76, 90):
        lines = view(progress, width)
        assert all(len(line) <= width for line in lines)
        [heading] = [line for line in lines if line.startswith("rung ")]
        headings = [name.strip() for name in heading.split("  ") if name.strip()]
        assert headings[:3] == ["rung", "runs", "state"]
        assert set(headings) <= set(columns(progress))
        assert ("steps/s" in headings) == (width >= 76)
        for rung, runs in (("stable-exponential" if width > 40 else "stable-ex", "2/2"), ("tanh-rnn", "1/1")):
            [line] = [line for line in lines if line.startswith(rung)]
            assert line.split()[1:3] == [runs, "done"]


def test_scores_of_chance_are_no_answer_so_far(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(rung, 0, k) for k, rung in enumerate("abc")])
    answers = []
    for score in (0.08, 0.12, 0.2):  # of ten classes
        ledger.finish(take(ledger, key), "done", result={"val/accuracy": score}, step=100)
        answers.append(so_far(collect(ledger, ledger.ladders()[0])))
    assert answers == ["", "", "best on validation: c, 20.0 % (mean of 1 seed)"]


@pytest.mark.parametrize("lost", ["nan", "diverged"])
def test_a_rung_is_not_the_best_so_far_because_its_bad_seeds_leave_the_mean(
    ledger: Ledger, key: str, lost: str
) -> None:
    ledger.enqueue(key, [want(rung, seed, position=seed) for rung in ("a", "b") for seed in range(2)])
    for _ in range(4):
        held = take(ledger, key)
        rung, seed = held.run.memberships[0].rung, held.run.seed
        score = {"a": 0.8, "b": 0.9}[rung] if (rung, seed) != ("b", 1) else math.nan
        state = lost if math.isnan(score) and lost != "nan" else "done"
        ledger.finish(held, state, result={"val/accuracy": score} if state == "done" else None, step=100)
    found = collect(ledger, ledger.ladders()[0])
    assert so_far(found) == "best on validation: a, 80.0 % (mean of 2 seeds)"
    assert {rung.rung: rung.scored for rung in found.rungs} == {"a": 2, "b": 1}


def test_the_answer_so_far_is_of_finished_runs_and_columns_stay_where_they_are(ledger: Ledger, key: str) -> None:
    ledger.enqueue(key, [want(rung, seed, k) for k, (rung, seed) in enumerate((r, s) for r in "ab" for s in (0, 1))])
    drawn = []
    for loss, score in ((2.5, 0.4), (123.0, 0.6), (1.0, 0.8), (0.5, 1.0)):
        held = take(ledger, key)
        ledger.record(held, [(20, "train/loss", loss), (20, "val/accuracy", score / 2)], 20)
        [instance] = ledger.ladders()
        drawn.append((view(collect(ledger, instance), 120), so_far(collect(ledger, instance))))
        ledger.finish(held, "done", result={"val/accuracy": score}, step=100)
        drawn.append((view(collect(ledger, instance), 120), so_far(collect(ledger, instance))))
    answers = [answer for _, answer in drawn]
    assert answers[:5] == [""] * 5, "one rung has finished runs"
    assert answers[5:7] == ["best on validation so far: b, 80.0 % (mean of 1 seed)"] * 2, "a running seed is no result"
    assert answers[7] == "best on validation: b, 90.0 % (mean of 2 seeds)"
    heads = {line for lines, _ in drawn for line in lines if line.startswith("rung ")}
    assert len(heads) == 1


def test_a_worker_that_has_not_advanced_for_long_is_shown(
    ledger: Ledger, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.enqueue(key, [want(execution={"steps_per_dispatch": 20})])
    held = take(ledger, key)
    [instance] = ledger.ladders()

    def after(seconds: float) -> LadderProgress:
        clock = ledger.newest_attempts([held.run.id])[held.run.id].seen_at + seconds
        monkeypatch.setattr(Ledger, "clock", lambda _: clock)
        return collect(ledger, instance)

    assert after(1000).silent == {}, "no step yet: it may be compiling"
    assert any(" compiling " in line for line in view(after(1), 120))
    ledger.record(held, [(20, "machine/steps_per_second", 4.0)], 20)
    assert after(45).silent == {}, "less than ten dispatches of 5 s"
    found = after(200)
    assert found.silent == {held.run.id: (200.0, 5.0)}
    text = f"({held.run.id}) at step 20 of"
    [line] = running_lines(found)
    assert text in line
    assert line.endswith(": has not advanced for 3:20 (a dispatch usually takes 5.0 s)")
    assert summary(found) == "0 of 1 done, 1 running, 1 worker has not advanced for 3:20"
    assert summary(after(10)).endswith(" left")
    for width in (60, 120):
        assert "has not advanced for 3:20" in " ".join(view(found, width))
    assert "advanced" not in " ".join(view(after(10), 120))
    assert "compiling" not in " ".join(view(after(10), 120))


def test_the_view_of_a_sweep_has_a_line_for_each_instance(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores: dict[float, dict[str, list[float]]] = {
        0.001: {"gamma-norm": [0.5, 0.7], "ring-init": [0.4, 0.5]},
        0.002: {"gamma-norm": [0.1, 0.1]},
    }
    for rate, of_rungs in scores.items():
        for rung, of_seeds in of_rungs.items():
            more = {"val/accuracy": sum(of_seeds) / 2}
            fill(path, "sDigits", {rung: of_seeds}, profile="smoke", sets={"optim.lr": rate}, more=more)
    with Ledger.open(path) as ledger:
        ladders = ledger.ladders()
        first, second = (ladder.short_name for ladder in ladders)
        lines = view_of(collect_sweep(ledger, ladders), 100)
        assert lines[0] == "sweep of 2 instances: ladder lru on sDigits, profile smoke"
        rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines[3:] if line and line[0] != "─"}
        assert rows[first] == "4/4 done 100% gamma-norm, 60.0 %"
        assert rows[second] == "2/2 done 100%", "no better than chance"
        assert lines[-1] == "6 of 6 done"
        for width in (30, 40, 60):
            assert all(len(line) <= width for line in view_of(collect_sweep(ledger, ladders), width))

        # a run that is in both counts once, and while one runs it is shown with its instance
        shared = want("gamma-norm", 7)
        for ladder in ladders:
            ledger.enqueue(ladder.key, [shared, want("gamma-norm", 8, fingerprint=f"sha256:{ladder.key}")])
        held = take(ledger, ladders[1].key)
        lines = view_of(collect_sweep(ledger, ladders), 100)
        assert any(line.startswith("6 of 9 done, 2 queued, 1 running") for line in lines), lines
        [running] = [line for line in lines if "at step 0" in line]
        assert running.startswith(f"{first}: gamma-norm seed 7 ({held.run.id})")

        # lines of a pipe say which instance a run is of
        said: list[str] = []
        monkeypatch.setattr(console, "is_terminal", lambda: False)
        monkeypatch.setattr(console, "say", lambda line: said.append(line.partition(" ")[2]))
        display = views.LadderView()
        display.update(ledger, *ladders)
        ledger.finish(held, "done", result={"val/accuracy": 0.5}, step=100)
        other = take(ledger, ladders[1].key)
        display.update(ledger, *ladders)
        assert said == [
            f"{first}: gamma-norm seed 7 ({held.run.id}): running",
            f"{first}: gamma-norm seed 7 ({held.run.id}): done, val 50.00 %",
            f"{second}: gamma-norm seed 8 ({other.run.id}): running",
        ]
