"""`report --methods`: each number of the paragraph is what the rows of the ledger say, counted by other queries, and
the paragraph is English for a paper."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lrurun.report.formats import latex
from lrurun.version import VERSION
from tests.docs import kept
from tests.harness import imported, programs
from tests.harness.environments import ENVIRONMENT, ON_GPU, train
from tests.harness.machine import Machine
from tests.harness.results import fill
from tests.harness.shared import once


def rows(machine: Machine, query: str, *values: Any) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(f"file:{machine.ledger}?mode=ro", uri=True)) as connection:
        return connection.execute(query, values).fetchall()


OF_INSTANCE = """
    FROM stored_runs r JOIN ladder_runs m ON m.run = r.number JOIN ladders l ON l.id = m.ladder
    LEFT JOIN exclusions x ON x.run = r.number WHERE l.short_name = ?
"""
COUNTED = "AND m.stage = 'train' AND r.superseded = 0 AND x.run IS NULL AND r.state IN ('done', 'diverged')"


def check(machine: Machine, name: str) -> dict[str, Any]:
    """Compares the facts of an instance with its rows, and the paragraph with the facts; the JSON."""
    made = machine.json("report", "--instance", name, "--methods")
    facts = made["facts"]
    seeds: dict[str, list[int]] = {}
    for rung, seed in rows(machine, f"SELECT m.rung, r.seed {OF_INSTANCE} {COUNTED} ORDER BY r.seed", name):
        seeds.setdefault(rung, []).append(seed)
    assert facts["seeds"]["seeds"] == seeds
    runs = rows(machine, f"SELECT count(DISTINCT r.number) {OF_INSTANCE} {COUNTED}", name)[0][0]
    diverged = dict(
        rows(machine, f"SELECT m.rung, count(*) {OF_INSTANCE} {COUNTED} AND r.state = 'diverged' GROUP BY m.rung", name)
    )
    assert (facts["runs"]["runs"], facts["runs"]["diverged"]) == (runs, diverged)
    kind = rows(machine, "SELECT kind FROM ladders WHERE short_name = ?", name)[0][0]
    if kind != "imported":
        every = f"SELECT DISTINCT r.number {OF_INSTANCE}"
        query = f"""SELECT total(coalesce(a.ended_at, a.seen_at) - a.started_at) FROM stored_attempts a
            WHERE a.run IN ({every})"""
        assert facts["hours"]["hours"] == pytest.approx(rows(machine, query, name)[0][0] / 3600)
    tried: dict[str, list[float]] = {}
    if "runs" in facts.get("tuning", {}):
        query = f"""SELECT DISTINCT m.rung, json_extract(d.text, '$.optim.lr') {
            OF_INSTANCE.replace(
                "WHERE",
                '''
            JOIN documents d ON d.id = r.config_id WHERE''',
            )
        } AND m.stage = 'tune' AND r.superseded = 0 ORDER BY 2"""
        for rung, rate in rows(machine, query, name):
            tried.setdefault(rung, []).append(rate)
        if kind == "training":
            found = {rung: sorted(each["optim.lr"]) for rung, each in facts["tuning"]["values"].items()}
            assert found == tried
        query = f"SELECT count(DISTINCT r.number) {OF_INSTANCE} AND m.stage = 'tune' AND r.superseded = 0"
        assert facts["tuning"]["runs"] == rows(machine, query, name)[0][0]
    diverged_tuning = dict(
        rows(
            machine,
            f"""SELECT m.rung, count(*) {OF_INSTANCE} AND m.stage = 'tune' AND r.superseded = 0 AND x.run IS NULL
            AND r.state = 'diverged' GROUP BY m.rung""",
            name,
        )
    )
    assert facts.get("diverged tuning", {}).get("diverged_tuning", {}) == diverged_tuning
    if kind == "training":
        path = "SELECT DISTINCT json_extract(d.text, '$.train.{}') " + OF_INSTANCE.replace(
            "WHERE", "JOIN documents d ON d.id = r.config_id WHERE"
        )
        for setting in ("steps", "batch", "eval_every"):
            values = [value for (value,) in rows(machine, f"{path.format(setting)} {COUNTED}", name)]
            assert sorted(facts["budget"][setting]) == sorted(values)
    report = machine.json("report", "--instance", name)
    assert facts["test"]["hypotheses"] == report["hypotheses"]
    assert facts["test"]["differences"] == sum(
        row["comparison"] is not None and row["comparison"]["p_adjusted"] is not None for row in report["rows"]
    )
    is_english(made["text"])
    assert [sentence["text"] for sentence in made["sentences"]]
    assert made["text"] == " ".join(sentence["text"] for sentence in made["sentences"]).replace("\xa0", " ")
    return made


def is_english(text: str) -> None:
    """Whole sentences without words of a command line, doubled blanks, wrong plurals, or Python's words for values."""
    for wrong in (
        *(r"--\w", r"`", r"\blrurun (?:report|ladder|plan|resume)\b", r"  ", r"\bNone\b", r"\bTrue\b", r"\bFalse\b"),
        *(r"\b(?:one|1) (?:\w+ )?(?:runs|seeds|claims|looks|values|items|sequences|trials|threads|steps|blocks)\b",),
        *(r"\(\)", r"\[\]", r"\.\.(?!\.)(?<!\.\.\.)[A-Za-z]", r" ,", r" \.(?!\w)", r";;", r"/home/"),
        *(r"\b[2-9]\d* (?:run|seed|claim|look|hypothesis|variant)\b",),
        *(r"[Tt]he difference of [^.,]* were tested", r"\bclaim, was tested", r"\bclaims was tested"),
    ):
        found = re.search(wrong, text)
        assert found is None, f"{wrong}: ...{text[max(0, found.start() - 60) : found.end() + 40]}..."
    assert re.match(r"[A-Z0-9]", text)
    assert text.endswith(".")


@pytest.fixture(scope="session")
def mixed() -> Machine:
    """A ladder in which much happened."""

    def make(folder: Path) -> None:
        machine = Machine(folder)
        train(machine.ledger, "tanh-rnn", ["done"] * 3 + ["diverged", "failed"])
        train(machine.ledger, "linear-rnn", ["done"] * 4 + ["queued"], environments=(ENVIRONMENT, ON_GPU))
        train(machine.ledger, "diagonal", ["done"] * 3)
        train(machine.ledger, "diagonal", ["done"] * 3, fresh=True)
        train(machine.ledger, "ring-init", ["done"], attempts=3)
        by_seed = {run["seed"]: run["id"] for run in machine.json("runs")["runs"] if run["rung"] == "linear-rnn"}
        machine.run("mark", by_seed[1], by_seed[2], "--exclude", "The disk was full.")

    return Machine(once("methods-mixed", make))


def test_a_plain_ladder_says_what_its_rows_say(mixed: Machine) -> None:
    made = check(mixed, "npDigits-smoke")
    facts, text = made["facts"], made["text"]
    assert text.startswith(
        "Four of the eight variants of a ladder were compared on npDigits (8x8 digits row by row, then noise, 10 "
        "classes; the reduced configuration smoke of its recipe). Of the ladder (from a tanh RNN to the Linear "
        "Recurrent Unit; Orvieto et al. 2023, Resurrecting"
    )
    assert facts["seeds"]["seeds"] == {
        "tanh-rnn": [0, 1, 2, 3],
        "linear-rnn": [0, 3],
        "diagonal": [0, 1, 2],
        "ring-init": [0],
    }
    for sentence in (
        "The data had 1,197 training, 300 validation and 300 test sequences.",
        "SHA-256 digest of the arrays: 634d8f0f63a4...",
        "1,008 to 1,010 parameters in all.",
        "were 4 (0 to 3) for tanh-rnn, 2 (0 and 3) for linear-rnn, 3 (0 to 2) for diagonal, and 1 (0) for ring-init.",
        "Each run was trained for 60 steps with AdamW (Loshchilov and Hutter 2019) on batches of 32 sequences, with a "
        "linear warm-up over the first 10 % of the steps and a cosine decay (Loshchilov and Hutter 2017), ",
        "evaluated on the validation split twice.",
        "Each run was evaluated on the test split once, at the step with the best validation accuracy.",
        "by Welch's t-test of means, two-sided, at a family-wise level of 5 % with Holm's correction for two "
        "hypotheses.",
        "These verdicts are provisional: with fewer than 12 seeds, they assume that no seed fails.",
        "In all, 10 runs entered the comparison, of which nine finished and one diverged, with a loss that was not "
        "finite (of tanh-rnn).",
        "One run failed and had no result (of tanh-rnn).",
        "One run had not finished when this was written (of linear-rnn).",
        "Two runs (linear-rnn, seeds 1 and 2) were excluded from all numbers, for this reason: The disk was full.",
        "Three earlier runs were superseded by later runs with the same settings and count nowhere.",
        "Runs were trained with lrurun 1.0.0, commit aaaaaaaaaaaa (9 runs) and lrurun 1.0.0, commit aaaaaaaaaaaa with "
        "uncommitted changes (1 run), on Python 3.12.1 and JAX 0.10.2.",
        f"They were analysed with lrurun {VERSION}.",
        "They ran on a CPU (AMD EPYC) (9 runs) and NVIDIA H200 (host CPU: AMD EPYC) (1 run), with one thread a run.",
        "One run was interrupted, twice, and finished later from checkpoints.",
    ):
        assert sentence in text, sentence
    assert facts["unfinished"] == {"unfinished": {"linear-rnn": 1}}
    assert facts["interruptions"] == {"runs": 1, "interruptions": 2, "resumed": 2}
    assert "not tuned" not in text
    assert "fixed before these runs" in text


def test_runs_that_broke_off_were_not_interrupted(machine: Machine) -> None:
    """An error or an exit of a process, after which a run is tried again, is no interruption; nor is a last attempt."""
    train(machine.ledger, "tanh-rnn", ["done"], attempts=3)
    train(machine.ledger, "linear-rnn", ["done", "done"], attempts=2)
    train(machine.ledger, "diagonal", ["done"])
    words = ("report", "npDigits", "--profile", "smoke", "--methods")
    with contextlib.closing(sqlite3.connect(machine.ledger)) as connection:
        for query, expected in (
            ("SELECT 1", ["Three runs were interrupted, four times in all, and finished later from checkpoints."]),
            (
                """
                UPDATE stored_attempts SET outcome = 'failed'
                WHERE n = 1 AND run = (SELECT min(run) FROM stored_attempts)
                """,
                [
                    "Three runs were interrupted, three times in all, and finished later from checkpoints.",
                    "One run broke off, once, and was tried again from a checkpoint.",
                ],
            ),
            (
                "UPDATE stored_attempts SET outcome = 'exited', resumed_from = NULL",
                ["Three runs broke off, four times in all, and were tried again, from the beginning."],
            ),
        ):
            connection.execute(query)
            connection.commit()
            made = machine.json(*words)
            found = [one for one in made["sentences"] if one["about"] in ("interruptions", "retries")]
            assert [sentence["text"] for sentence in found] == expected
            is_english(made["text"])
    [retries] = found
    assert retries["facts"] == {"runs": 3, "retries": 4, "resumed": 0}


def test_formats_have_the_same_sentences(mixed: Machine, tmp_path: Path) -> None:
    words = ("report", "npDigits", "--profile", "smoke", "--methods")
    text = mixed.json(*words)["text"]
    assert mixed.run(*words).stdout.replace("\n", " ").strip() == text
    assert all(len(line) <= 60 for line in mixed.shown(*words, width=60).splitlines())
    for name in ("methods.txt", "methods.md", "methods.tex", "methods.json"):
        assert mixed.run(*words, "--out", str(tmp_path / name)).stderr == f"wrote {tmp_path / name}\n"
    assert (tmp_path / "methods.txt").read_text() == f"{text}\n"
    tex = (tmp_path / "methods.tex").read_text()
    assert "5~\\% with Holm's" in tex
    assert "r\\_min from 0 to 0.9" in tex
    assert tex.isascii()
    sentences = [sentence["text"] for sentence in mixed.json(*words)["sentences"]]
    assert tex.splitlines() == [latex.escape(sentence) for sentence in sentences]
    assert json.loads((tmp_path / "methods.json").read_text())["text"] == text
    assert "r_min from 0 to 0.9" in (tmp_path / "methods.md").read_text()


def test_refusals(mixed: Machine, machine: Machine) -> None:
    words = ("report", "npDigits", "--profile", "smoke", "--methods")
    for more, error in (
        (("--format", "csv"), "error: --methods and csv: a paragraph is text, not a table or a page\n"),
        (("--out", "x.html"), "error: --methods and html: a paragraph is text, not a table or a page\n"),
        (("--speed",), "error: --methods and --speed exclude each other\n"),
        (("--by", "optim.lr"), "error: --methods and --by exclude each other\n"),
        (("--rung", "diagonal"), "error: --methods and --rung exclude each other\n"),
    ):
        assert mixed.refused(*words, *more).startswith(error)
    assert "--methods: does not apply to reports of studies" in mixed.refused("report", "study:memory", "--methods")
    assert "there is no ledger" in machine.refused("report", "npDigits", "--methods", code=4)
    train(machine.ledger, "diagonal", ["failed"])
    assert machine.refused(*words, code=4) == (
        "error: npDigits-smoke: has no finished runs, so there is nothing to describe\n"
        "hint: run: lrurun resume --instance npDigits-smoke\n"
    )


def test_runs_that_were_removed_are_named_with_the_reason(mixed: Machine, tmp_path: Path) -> None:
    machine = mixed.copy(tmp_path / "copy")
    machine.run("ledger", "backup", "--out", "part.db", "--where", "rung!=ring-init")
    part = machine.json("report", "npDigits", "--profile", "smoke", "--methods", "--ledger", "part.db")
    assert part["facts"]["left out"] == {"left_out": {"ring-init": 1}}
    assert (
        "One further run of the comparison is not part of the record that this was written from (one of ring-init)."
        in part["text"]
    )
    why = ("--why", "these used a wrong file", "--yes")
    machine.run("ledger", "forget", "--where", "rung=diagonal and superseded=0", *why, code=None)
    machine.run("ledger", "forget", "--where", "rung=diagonal", *why)
    made = check(machine, "npDigits-smoke")
    query = "SELECT count(DISTINCT substr(run, 1, 12)) FROM removed_runs WHERE rung = 'diagonal' AND stage = 'train'"
    count = rows(machine, query)[0][0]
    assert made["facts"]["deleted"] == {"deleted": {"diagonal": count}, "why": ["these used a wrong file"]}
    is_english(made["text"])
    assert "deleted with their results before this was written" in made["text"]
    assert "the reason given: these used a wrong file." in made["text"]


@pytest.mark.slow
def test_a_design_says_its_looks(machine: Machine) -> None:
    centers = {"relu-rnn": 0.2, "tanh-rnn": 0.8, "linear-rnn": 0.805}
    scores = {rung: [center + 0.02 * (7 * seed % 5 - 2) for seed in range(12)] for rung, center in centers.items()}
    fill(machine.ledger, "sDigits", scores, ladder="nonlinearity", profile="smoke")
    options = ("--ladder", "nonlinearity", "--profile", "smoke")
    machine.run("ladder", "sDigits", *options, "--decide", "--max-seeds", "12")
    [(name,)] = rows(machine, "SELECT short_name FROM ladders")
    made = check(machine, name)
    [(design,)] = rows(machine, "SELECT payload FROM events WHERE kind = 'design'")
    looks = rows(machine, "SELECT payload FROM events WHERE kind = 'look'")
    facts = made["facts"]["design"]
    assert facts["looks"] == [look["seeds"] for look in json.loads(design)["looks"]] == [12]
    assert facts["looks_taken"] == len(looks) == 1
    assert facts["questions"] == len(json.loads(design)["questions"])
    assert facts["finished_before"] == json.loads(design)["finished_before"] == 36
    text = made["text"]
    assert (
        "with a look at 12 seeds, which spent the whole level. One look was taken, and one of three questions" in text
    )
    assert "and 36 runs had finished before the design was fixed." in text
    assert "by the Brunner-Munzel rank test with its permutation distribution, two-sided" in text
    assert "provisional" not in text


def test_rates_that_were_set_and_two_instances_of_a_sweep(machine: Machine) -> None:
    for rate in (0.001, 0.00001):
        fill(machine.ledger, "npDigits", {"diagonal": [0.5, 0.6]}, profile="smoke", sets={"optim.lr": rate})
    for (name,), rate in zip(
        rows(machine, "SELECT short_name FROM ladders ORDER BY id"), ("0.001", "0.00001"), strict=True
    ):
        made = check(machine, name)
        expected = f"The peak learning rate was {rate} for diagonal, set by hand, not tuned."
        assert expected in made["text"]
        assert "No variants were compared by a test, for lack of results." in made["text"] or "not compared" in str(
            made
        )


@pytest.mark.slow
def test_a_program_with_tuning_says_what_is_not_known(machine: Machine) -> None:
    programs.write(machine.folder)
    (machine.folder / "toy.py").write_text(programs.LINEAR)
    machine.run("ladder", "toy.toml", "--seeds", "2", "--tune", "--jobs", "1")
    [(name,)] = rows(machine, "SELECT short_name FROM ladders")
    made = check(machine, name)
    facts, text = made["facts"], made["text"]
    [(digest,)] = rows(machine, "SELECT DISTINCT json_extract(text, '$.program.files.\"toy.py\"') FROM documents WHERE 1 ORDER BY 1 DESC LIMIT 1")  # fmt: skip  # noqa: E501
    assert facts["program"]["files"] == {"toy.py": [digest]}
    for sentence in (
        f"Each run was one execution of a program of the authors, whose file was toy.py (SHA-256 {digest[7:19]}...)",
        "For each variant, lr was chosen from two values (0.01 and 0.02), each trained with three seeds that entered "
        "no comparison; the choice fell on the best mean validation accuracy.",
        "The chosen value of lr was 0.02 for all variants.",
        "The best value tried lay at an end of the range for narrow and wide, so that a better one may lie beyond.",
        "The sizes of the data splits are not recorded.",
        "whether the program itself selected on test data is not recorded.",
        "the packages that the program used are not recorded.",
        "All variants had epochs = 4 and name = plain text.",
    ):
        assert sentence in text, sentence
    assert str(machine.folder) not in text


def test_imported_runs_say_what_is_not_known(machine: Machine) -> None:
    imported.fill(machine.ledger, imported.write(machine.folder), tried={"batch": [0.1, 0.2]})
    made = check(machine, "runs")
    for sentence in (
        "The runs were made with other software and read from its records: 20 runs from runs.csv (csv).",
        "the test set had 1,000 items.",
        "How and among how many values their settings were tuned is not recorded.",
        "Each run counts with its last recorded test_acc; whether it was measured on data that nothing was selected on "
        "is not recorded.",
        "One run failed and had no result (of batch). One run had no result in the records (of batch).",
        "Versions and devices of these runs are not recorded here; by their records, they took",
    ):
        assert sentence in made["text"], sentence
    spans = rows(machine, """
        SELECT json_extract(d.text, '$.times[0]'), json_extract(d.text, '$.times[1]') FROM stored_attempts a
        JOIN documents d ON d.id = a.environment_id JOIN stored_runs r ON r.number = a.run
        JOIN ladder_runs m ON m.run = r.number WHERE m.stage = 'train' AND r.state IN ('done', 'diverged')
    """)  # fmt: skip
    assert made["facts"]["machines"]["hours"] == pytest.approx(sum(end - start for start, end in spans) / 3600)


@pytest.mark.slow
def test_every_kept_ladder() -> None:
    """Ladders of three hundred runs, tuned or swept, of several versions."""
    with kept.merged("map") as machine:
        names = [
            name for (name,) in rows(machine, "SELECT short_name FROM ladders WHERE kind = 'training' ORDER BY id")
        ]
        assert len(names) > 40
        for name in names:
            check(machine, name)


TRAININGS = """\
name = "trainings"
title = "Ways to train"
source = "ours"

[[rung]]
name = "usual"
title = "AdamW"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.r_min" = 0.5, "model.recurrence.r_max" = 0.9 }

[[rung]]
name = "same"
title = "another radius"
change = { "model.recurrence.r_max" = 0.8 }
"""
FURTHER = """
[[rung]]
name = "sgd"
title = "SGD"
on = "usual"
change = { "optim.name" = "sgd", "optim.momentum" = 0.9, "optim.recurrent_factor" = 1.0 }

[[rung]]
name = "clipped"
title = "clipped"
on = "usual"
change = { "optim.clip" = 1.0, "optim.schedule" = "wsd", "optim.warmup_steps" = 3, "optim.decay_recurrent" = true }

[[rung]]
name = "averaged"
title = "averaged, with small batches"
on = "usual"
change = { "optim.average" = "ema", "optim.average_decay" = 0.99, "optim.accumulate" = 2, "optim.floor" = 0.001 }

[[rung]]
name = "free"
title = "schedule-free AdamW"
on = "usual"
change = { "optim.name" = "schedule_free_adamw", "optim.schedule" = "constant" }
lr = 0.002
lr_chosen = "a tenth of another"
"""


def trained(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ladder: str, rungs: str, sets: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The methods of a ladder."""
    monkeypatch.chdir(machine.folder)
    (machine.folder / "trainings.toml").write_text(ladder)
    scores = {rung: [0.5, 0.6] for rung in rungs.split()}
    fill(machine.ledger, "npDigits", scores, ladder="trainings.toml", profile="smoke", sets=sets or {})
    options = [word for path, value in (sets or {}).items() for word in ("--set", f"{path}={json.dumps(value)}")]
    made = machine.json("report", "npDigits", "--profile", "smoke", "--ladder", "trainings.toml", *options, "--methods")
    is_english(made["text"])
    return made


def sentences(made: dict[str, Any], *about: str) -> list[str]:
    return [one["text"].replace("\xa0", " ") for one in made["sentences"] if one["about"] in about]


TRAINING = ("budget", "optimizer", "schedule", "recurrent rate", "decay", "clipping", "accumulation", "average")


def test_training_settings_that_differ_are_named_with_their_rungs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trained(machine, monkeypatch, TRAININGS + FURTHER, "usual same sgd clipped averaged free")
    warmup = "a linear warm-up over the first 10 % of the steps and a cosine decay"
    assert sentences(made, *TRAINING) == [
        "Each run was trained for 60 steps on batches of 32 sequences, and evaluated on the validation split twice.",
        "Optimisers: for usual, same, clipped and averaged, AdamW (Loshchilov and Hutter 2019); for sgd, stochastic "
        "gradient descent (Robbins and Monro 1951; Sutskever et al. 2013) with momentum = 0.9; for free, schedule-free "
        "AdamW (Defazio et al. 2024).",
        f"Schedules of the learning rate: for usual, same and sgd, {warmup} (Loshchilov and Hutter 2017); for clipped, "
        "a linear warm-up over the first 3 steps, a constant rate and a linear decay over the last 20 % of the steps "
        f"(Hu et al. 2024; Hägele et al. 2024); for averaged, {warmup} to 0.001 (Loshchilov and Hutter 2017); "
        "for free, a linear warm-up over the first 10 % of the steps and a constant rate.",
        "Learning rates of groups: for usual, same, clipped, averaged and free, recurrent parameters at 0.5 times the "
        "learning rate; for others, one rate for all parameters.",
        "Weight decay: for usual, same, averaged and free, a weight decay of 0.05 (recurrent parameters do not decay); "
        "for sgd, a weight decay of 0.05 as a part of the gradient (recurrent parameters do not decay); for clipped, a "
        "weight decay of 0.05.",
        "Clipping of gradients: for clipped, gradients clipped to a global norm of 1 (Pascanu et al. 2013); for "
        "others, none.",
        "Accumulation of gradients: for averaged, gradients accumulated over 2 parts of each batch; for others, none.",
        "Averages, which were evaluated and kept in place of the parameters that were trained: for averaged, an "
        "exponential moving average of the parameters with a decay of 0.99; for free, the optimiser's own average of "
        "its iterates; for others, none.",
    ]
    assert sentences(made, "learning rates") == [
        "The peak learning rate was 0.016 for usual, same, clipped and averaged, not tuned for these variants (the "
        "recipe's default).",
        "The peak learning rate was 0.016 for sgd, not tuned for these variants (a rate for adamw).",
        "The peak learning rate was 0.002 for free, fixed before these runs (a tenth of another).",
    ]
    assert (
        "free (schedule-free AdamW, a change to usual, optimiser from adamw to schedule_free_adamw, schedule"
        in (made["text"])
    )
    facts = made["facts"]["budget"]
    assert (facts["name"], facts["clip"], facts["schedule"]) == (
        ["adamw", "sgd", "schedule_free_adamw"],
        [0.0, 1.0],
        ["cosine", "wsd", "constant"],
    )
    assert made["facts"]["optimizer"]["by_rung"]["averaged"] == "AdamW (Loshchilov and Hutter 2019)"


def test_training_settings_of_all_rungs_are_one_sentence(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = {
        "optim.name": "prodigy", "optim.lr": 1.0, "optim.recurrent_factor": 1.0, "optim.schedule": "inverse-sqrt",
        "optim.warmup_steps": 0, "optim.clip": 0.5, "optim.clip_by": "block-rms", "optim.accumulate": 4,
        "optim.average": "ema", "optim.weight_decay": 0.0,
    }  # fmt: skip
    made = trained(machine, monkeypatch, TRAININGS, "usual same", sets)
    assert sentences(made, *TRAINING) == [
        "Each run was trained for 60 steps with Prodigy (Mishchenko and Defazio 2023), whose estimate of the learning "
        "rate the schedule multiplies, on batches of 32 sequences, with an inverse square-root decay (Vaswani et "
        "al. 2017), no weight decay, the gradient of each array of parameters clipped to a root mean "
        "square of 0.5, gradients accumulated over 4 parts of each batch, and evaluated on the validation split twice.",
        "An exponential moving average of the parameters with a decay of 0.999 was evaluated and kept in place of the "
        "parameters that were trained.",
    ]
    assert "peak learning rate" not in made["text"], "it is a factor of an estimate"
