"""Conditions on runs: their meaning, their errors, and `lrurun runs` with them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pty
import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from lrurun import console
from lrurun.__main__ import run as command
from lrurun.config.runs import InstanceSpec
from lrurun.config.schema import is_setting, known_paths
from lrurun.errors import UsageError
from lrurun.ledger import columns, filters
from lrurun.ledger.store import Ledger
from tests.harness.machine import Machine
from tests.harness.stores import ME, drop_trigger, raw, want

KNOWN = columns.Names(["val/extra"])


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], bool]]:
    """Whether a condition is true of the only run of a ledger."""
    path = tmp_path_factory.mktemp("one") / "ledger.db"
    with Ledger.open(path) as ledger:
        key = ledger.add_ladder("lru", "ListOps", None, InstanceSpec()).key
        config = {"task": "ListOps", "optim": {"lr": 4e-4}, "model": {"recurrence": {"normalize": True}}, "seed": 3}
        same = {"task": "ListOps", "config": config, "fingerprint": f"sha256:{'0' * 64}"}
        ledger.enqueue(key, [want(rung, 3, 3, **same) for rung in ("disk", "ring-init")])
        claim = ledger.claim(key, ME)
        assert claim is not None
        ledger.finish(claim, "done", result={"val/accuracy": 0.75, "val/extra": math.nan})
    drop_trigger(path, "runs_finished_stay", "stored_runs")
    raw(path, "UPDATE stored_runs SET id = '123456789012', created_at = 1795168800.25")
    with Ledger.open(path) as ledger:
        yield lambda text: bool(ledger.run_ids(filters.parse(text, KNOWN)))


@pytest.mark.parametrize(
    "text",
    [
        "task=ListOps",
        "task==ListOps",
        "task = 'ListOps'",
        'task="ListOps"',
        "task!=Text",
        "task>Kist",
        "task=ListOps and val/accuracy>0.5 and optim.lr<1e-3",
        "id=123456789012",
        "seed=3 AND seed=3.0 and seed=+3 and seed=3e0",
        "seed>-1 and seed>=3 and seed<=3 and seed<4 and not seed!=3",
        "val/accuracy>.5",
        "rung=disk and rung=ring-init",
        "rung!=tanh-rnn",
        "tag!=good",
        "profile!=smoke and profile=''",
        "not tag=good",
        "not test/accuracy>0",
        "model.recurrence.normalize=true and model.recurrence.normalize!=false",
        "created_at>2026-11-20 and created_at<2026-11-21",
        # and binds closer than or, not closer than either
        "state=done or state=done and state=failed",
        "not state=failed and state=done",
        "not(state=failed)and(state=done)",
        "not not state=done",
        "(((state=done)))",
        "val/extra!=1",
        "task!='and'",
        # times
        "created_at>2026 and created_at>=2026-11 and created_at<2027 and created_at<=2026-12",
        "created_at>2026-11-20T09:59 and created_at<'2026-11-20 10:01'",
        "created_at='2026-11-20 10:00:00' and created_at=2026-11-20T10:00:00 and created_at=2026-11-20T10:00:00Z",
        "created_at=2026-11-20T11:30:00+01:30 and created_at='2026-11-19 23:00:00.75-11:00'",
        "created_at>'2026-11-20 09:59:59' and not created_at>'2026-11-20 10:00:00'",
        "created_at<2026-11-20T10:00-00:01 and created_at>2026-11-20T10:00:00+00:01",
        "created_at=1795168800 and created_at=1795168800.9 and created_at>1795168799 and created_at<1795168801",
        "created_at!=2026-11-20 and created_at>2026-11-20",
    ],
)
def test_conditions_that_are_true(text: str, holds: Callable[[str], bool]) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "task=listops",
        "rung!=disk",
        "tag=good",
        "test/accuracy=0",
        "test/accuracy!=0",
        "test/accuracy>0 or test/accuracy<=0",
        "profile=smoke",
        "profile!=''",
        "stage=tune",
        "stage!=train",
        "model.recurrence.kernel_length>=0",
        "(state=done or state=done) and state=failed",
        "val/extra>0",
        "val/extra<=0",
        "seed=3 and not seed=3",
    ],
)
def test_conditions_that_are_false(text: str, holds: Callable[[str], bool]) -> None:
    assert not holds(text)


STATES = "states: queued, running, done, diverged, failed, interrupted"
TIME_HINT = "as in: created_at>2026-11-22 and finished_at<='2026-11-22 14:49:40' (UTC), or seconds since 1970"
HINT = "as in: task=sDigits and (val/accuracy>=0.9 or not state=done)"
FIELDS = (
    "fields: id, kind, task, ladder, rung, stage, profile, instance, user, seed, state, step, steps, parameters, "
    "numerics, created_at, finished_at, duration, tag, best_step, escape_step; results such as val/accuracy; "
    "settings such as optim.lr"
)


@pytest.mark.parametrize(
    ("text", "error", "hint"),
    [
        ("", "column 1: expected a name, 'not' or '(', found the end", HINT),
        ("   ", "column 4: expected a name, 'not' or '(', found the end", HINT),
        ("seed", "column 5: expected = != < <= > or >= after seed, found the end", HINT),
        ("seed=", "column 6: expected a value to compare seed with, found the end", HINT),
        ("seed=3 task=x", "column 8: expected and, or, or the end, found 'task'", HINT),
        ("seed=3)", "column 7: expected and, or, or the end, found ')'", HINT),
        ("(seed=3", "column 8: expected ')', 'and' or 'or', found the end", HINT),
        ("seed=3 and", "column 11: expected a name, 'not' or '(', found the end", HINT),
        ("and seed=3", "column 1: expected a name, 'not' or '(', found 'and'", HINT),
        ("seed=and", "column 6: expected a value to compare seed with, found 'and'", HINT),
        ("seed=three", "column 6: expected a number to compare seed with, found 'three'", HINT),
        (
            "optim.lr>30%",
            "column 10: expected a number to compare optim.lr with, found '30%'",
            "only shares such as test/accuracy are compared in per cent",
        ),
        (
            "val/extra>30%",
            "column 11: expected a number to compare val/extra with, found '30%'",
            "only shares such as test/accuracy are compared in per cent; a metric of a task of your own needs "
            "--load FILE, or write 0.3",
        ),
        (
            "val/extra>30%%",
            "column 11: expected a number to compare val/extra with, found '30%%'",
            HINT,
        ),
        (
            "val/loss>30%",
            "column 10: expected a number to compare val/loss with, found '30%'",
            "only shares such as test/accuracy are compared in per cent",
        ),
        ("val/accuracy>'30%'", "column 14: expected a number to compare val/accuracy with, found \"'30%'\"", HINT),
        ("val/accuracy>30%%", "column 14: expected a number to compare val/accuracy with, found '30%%'", HINT),
        ("seed='3'", "column 6: expected a number to compare seed with, found \"'3'\"", HINT),
        ("seed=nan", "column 6: expected a number to compare seed with, found 'nan'", HINT),
        ("val/accuracy>high", "column 14: expected a number to compare val/accuracy with, found 'high'", HINT),
        ("rung<disk", "column 5: expected = or != after rung, found '<'", HINT),
        (
            "execution.remat=1",
            "column 17: expected true or false to compare execution.remat with, found '1'",
            HINT,
        ),
        ("task='List", "column 6: a quote that does not end", "add another '"),
        ('task="List', "column 6: a quote that does not end", 'add another "'),
        ("!seed=3", "column 1: unexpected '!'", HINT),
        ("sed=3", "column 1: unknown name 'sed'", f"did you mean 'seed'? {FIELDS}"),
        ("seed=3 and optim.rl=1", "column 12: unknown name 'optim.rl'", f"did you mean 'optim.lr'? {FIELDS}"),
        ("lr=1", "column 1: unknown name 'lr'", f"did you mean 'optim.lr'? {FIELDS}"),
        ("zzzzzzzz=1", "column 1: unknown name 'zzzzzzzz'", FIELDS),
        ("__import__('os').system('x')=1", "column 1: unknown name '__import__'", FIELDS),
        ("seed=1; drop table runs", "column 6: expected a number to compare seed with, found '1;'", HINT),
        ("3=seed", "column 1: unknown name '3'", FIELDS),
        ("seed=" + "9" * 100, "", ""),
        ("state=dne", "column 7: unknown state 'dne'", f"did you mean 'done'? {STATES}"),
        ("state!=''", "column 8: unknown state ''", STATES),
    ],
)
def test_errors_name_the_column(text: str, error: str, hint: str) -> None:
    if not error:
        filters.parse(text, KNOWN)
        return
    with pytest.raises(UsageError) as refused:
        filters.parse(text, KNOWN)
    assert (refused.value.message, refused.value.hint) == (f"--where, {error}", hint)


@pytest.mark.parametrize(
    "value",
    [
        *("yesterday", "zzz", "12:00", "2026-13-45", "2026-02-29", "2026-11-22T25:00", "2026-11-22T10:00:60", "0000"),
        *("20261122", "2026-1-2", "2026-11-22T14", "2026-11-", "0", "1e9", "999999999999", "1795168800000", "-5"),
        *("0001-01-01T00:00+01:00", "9999-12-31T23:59:59-01:00", "2026-11-22Z", "٢٠٢٦", "2026-11-22T10:00:00+25:00"),
    ],
)
def test_other_times_are_refused(value: str) -> None:
    with pytest.raises(UsageError) as refused:
        filters.parse(f"finished_at<{value}", KNOWN)
    assert refused.value.message == (
        f"--where, column 13: expected a date or time to compare finished_at with, found {value!r}"
    )
    assert refused.value.hint == TIME_HINT


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x" * 1_000_000, "--where: 1000000 characters are too long"),
        ("(" * 10_000, "--where, column 101: nested more than 100 deep"),
        ("(" * 4000 + "seed=3" + ")" * 4000, "--where, column 101: nested more than 100 deep"),
        ("not " * 2000 + "seed=3", "--where, column 401: nested more than 100 deep"),
        ("y" * 5000 + "=1", f"--where, column 1: unknown name '{'y' * 37}...'"),
    ],
)
def test_errors_of_huge_conditions_are_one_line(text: str, error: str) -> None:
    with pytest.raises(UsageError) as refused:
        filters.parse(text, KNOWN)
    assert refused.value.message == error


def test_a_hundred_parentheses_and_two_hundred_comparisons_are_read(holds: Callable[[str], bool]) -> None:
    assert holds("(" * 100 + "seed=3" + ")" * 100)
    assert holds(" and ".join(["seed=3"] * 200))


def test_any_text_is_a_condition_or_one_error(holds: Callable[[str], bool]) -> None:
    draw = random.Random(0)
    pieces = [
        "seed",
        "=",
        "<",
        "3",
        "(",
        ")",
        "and",
        "or",
        "not",
        " ",
        "'",
        '"',
        "task",
        "\x1b[31m",
        "é",
        "\n",
        "!",
        "%s",
    ]
    for _ in range(3000):
        text = "".join(draw.choices(pieces, k=draw.randrange(12)))
        with contextlib.suppress(UsageError):
            assert holds(text) in (True, False)


# `lrurun runs`


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a ledger of four runs, of which the first is done, the second diverged."""
    monkeypatch.chdir(tmp_path)
    with Ledger.open("ledger.db") as ledger:
        key = ledger.add_ladder("lru", "sDigits", "smoke", InstanceSpec()).key
        ledger.enqueue(
            key,
            [
                want(
                    "ring",
                    seed,
                    seed,
                    config={"task": "sDigits", "optim": {"lr": rate}, "seed": seed},
                    execution={"threads": seed + 1},
                )
                for seed, rate in enumerate((0.001, 0.004, 0.002, 0.002))
            ],
        )
        for state, score in (("done", 0.5), ("diverged", math.nan)):
            claim = ledger.claim(key, ME)
            assert claim is not None
            ledger.finish(claim, state, result={"val/accuracy": score, "val/rare": 1.0})
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """The seeds of the runs that are listed."""
    assert command(["runs", "--json", *words]) == 0
    return [run["seed"] for run in json.loads(capsys.readouterr().out)["runs"]]


def test_runs_are_chosen_and_sorted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys) == [3, 2, 1, 0]
    assert listed(capsys, "--where", "val/accuracy>0.1") == [0]
    assert listed(capsys, "--where", "val/rare=1") == [1, 0]
    assert listed(capsys, "--where", "state=queued and optim.lr<=0.002") == [3, 2]
    assert listed(capsys, "--where", "execution.threads>=3 or profile!=smoke") == [3, 2]
    assert listed(capsys, "--where", "rung=ring and ladder=lru and stage=train and profile=smoke", "--limit", "1") == [
        3
    ]
    assert listed(capsys, "--where", "created_at<2020 or finished_at>2020") == [1, 0]
    assert listed(capsys, "--sort", "seed") == [0, 1, 2, 3]
    assert listed(capsys, "--sort", "-seed", "--limit", "0") == [3, 2, 1, 0]
    assert listed(capsys, "--sort", "optim.lr") == [0, 3, 2, 1]
    assert listed(capsys, "--sort", "-optim.lr") == [1, 3, 2, 0]
    assert listed(capsys, "--sort", "-val/accuracy") == [0, 3, 2, 1]
    assert listed(capsys, "--sort", "finished_at") == [0, 1, 3, 2]
    assert listed(capsys, "--sort", "seed", "--limit", "2", "--ladder", "lru") == [0, 1]
    assert command(["runs", "--where", "seed>10"]) == 0
    assert capsys.readouterr() == ("", "none of 4 runs fulfils the condition\n")
    assert command(["runs", "--where", "rung=rinng and task=sDigits"]) == 0
    assert capsys.readouterr() == ("", "none of 4 runs fulfils the condition; did you mean rung=ring?\n")


def test_shares_are_fractions_or_in_per_cent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(capsys, "--where", "val/accuracy>=50%") == listed(capsys, "--where", "val/accuracy>=0.5") == [0]
    assert listed(capsys, "--where", "val/accuracy>50%") == []
    shares = filters.parse("val/accuracy>69.9%", KNOWN)
    assert isinstance(shares, filters.ValueComparison)
    assert shares.number == 0.699
    none = "none of 4 runs fulfils the condition\n"
    for compared, name, hint in (
        ("test/accuracy > 30", "accuracy", "0.3, or 30%"),
        ("val/f1>=62.5", "f1", "0.625, or 62.5%"),
    ):
        assert command(["runs", "--where", compared]) == 0
        shown = compared.replace(" ", "")
        assert capsys.readouterr() == ("", f"warning: --where, {shown}: {name} is a fraction: {hint}\n{none}")
    for text in ("test/accuracy>1", "test/accuracy>100%", "test/loss>30"):
        assert command(["runs", "--where", text]) == 0
        assert capsys.readouterr() == ("", none)


def test_the_profile_of_the_plain_recipe_is_empty(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.open("ledger.db") as ledger:
        plain = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(plain, [want("disk", 4), want("ring", 3)])
    assert listed(capsys, "--where", "profile!=smoke") == [4]
    assert listed(capsys, "--where", "profile=''") == [4, 3]
    assert listed(capsys, "--where", "profile=smoke") == [3, 2, 1, 0]
    assert listed(capsys, "--sort", "profile") == [4, 3, 2, 1, 0]


def test_wrong_conditions_and_orders_exit_2(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["runs", "--where", "val/rar=1"]) == 2
    assert capsys.readouterr() == (
        "",
        f"error: --where, column 1: unknown name 'val/rar'\nhint: did you mean 'val/rare'? {FIELDS}\n",
    )
    assert command(["runs", "--sort", "--", "-sed"]) == 2
    capsys.readouterr()
    assert command(["runs", "--sort=-sed"]) == 2
    assert capsys.readouterr().err == f"error: --sort: unknown name 'sed'\nhint: did you mean 'seed'? {FIELDS}\n"
    assert command(["runs", "--where", "task='\x1b[31m[red]' or zed=1"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_without_a_ledger_the_list_is_empty_and_conditions_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert listed(capsys, "--where", "val/accuracy>0.5", "--sort", "-val/accuracy") == []
    assert command(["runs", "--where", "val/rar=1"]) == 2
    assert list(tmp_path.iterdir()) == []


def on_terminal(machine: Machine, *arguments: str, columns: int = 100) -> tuple[str, str, int]:
    """Stdout, stderr and exit code of a command whose stdout is a terminal of this width."""
    parent, child = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # as soon as the terminal is closed
            while part := os.read(parent, 65536):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    err = io.StringIO()
    console._console.cache_clear()  # whose width is that of the environment
    with (
        open(child, "w", encoding="utf-8") as terminal,
        mock.patch.dict(
            os.environ, machine.env | {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}, clear=True
        ),
        contextlib.chdir(machine.folder),
        contextlib.redirect_stdout(terminal),
        contextlib.redirect_stderr(err),
    ):
        code = command(list(arguments))
    console._console.cache_clear()
    reader.join()
    os.close(parent)
    return b"".join(parts).decode().replace("\r\n", "\n"), err.getvalue(), code


def test_a_terminal_gets_the_newest_fifty_and_how_many_more_there_are(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(machine.ledger) as ledger:
        key = ledger.add_ladder("lru", "sDigits", None, InstanceSpec()).key
        ledger.enqueue(key, [want(seed=seed, position=seed) for seed in range(60)])
    out, err, code = on_terminal(machine, "runs", columns=40)
    ids = re.findall("^[0-9a-f]{12}", out, re.MULTILINE)
    assert (len(ids), out.count("queued")) == (50, 50)
    assert (err, code) == ("and 10 more; --limit 0 lists all\n", 0)
    assert "Not shown at this width: task, " in out
    assert max(map(len, out.splitlines())) <= 40
    assert "\x1b" not in out
    out, err, _ = on_terminal(machine, "runs", "--limit", "55")
    assert (out.count("queued"), err) == (55, "")
    monkeypatch.chdir(machine.folder)
    assert command(["runs"]) == 0
    assert capsys.readouterr().out.count("queued") == 60
    assert len(listed(capsys)) == 60


def test_the_table_of_a_recurrence_is_no_setting() -> None:
    assert all(map(is_setting, known_paths()))
    assert not is_setting("model.recurrence")
    assert "model.recurrence" not in columns.Names()
