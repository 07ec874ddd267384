# ruff: noqa: E501 (whole outputs are compared as they are)
"""Training speeds: which runs a row holds, over which rung it is faster, and the same numbers in every format."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lrurun import __main__ as entry
from lrurun import catalog
from lrurun import plan as planning
from lrurun.errors import LrurunError
from lrurun.ledger import values
from lrurun.ledger.store import Ledger
from lrurun.report import render, speed
from tests.test_report import make_run, make_rung

XEON = {"device": "cpu", "machine": {"cpu": "Xeon"}}
H100 = {"device": "NVIDIA H100"}
HERE = {"threads": 1, "steps_per_dispatch": 25}

PAPER = {"source": "Paper, Table 4", "device": "A100"}
MINI = catalog.Ladder(
    name="mini",
    title="three rungs",
    source="Paper",
    rungs=(make_rung("tanh-rnn", "dense RNN"), make_rung("diagonal", "diagonal"), make_rung("lru", "the | whole")),
    speeds=(
        catalog.Speed(system="tanh RNN", rung="tanh-rnn", steps_per_second={"sDigits": 2.0}, **PAPER),
        catalog.Speed(system="LRU", rung="lru", steps_per_second={"sDigits": 15.0, "Text": 14.7}, **PAPER),
        catalog.Speed(system="S4D", steps_per_second={"sDigits": 13.0}, **PAPER),
    ),
)

# Means 12 and 40; standard errors 2 / sqrt(3) = 1.1547 and sqrt(200 / 2) = 10; speed-up 40 / 12 = 3.3333.
MADE: list[tuple[str, str, float | None, dict[str, Any]]] = [
    ("t0", "tanh-rnn", 10.0, XEON),
    ("t1", "tanh-rnn", 12.0, XEON),
    ("t2", "tanh-rnn", 14.0, XEON),
    ("l0", "lru", 30.0, XEON),
    ("l1", "lru", 600.0, H100),
    ("l2", "lru", 50.0, XEON),
]


def attempt(run: str, environment: dict[str, Any], host: str = "here") -> values.Attempt:
    fields: dict[str, Any] = dict.fromkeys(values.Attempt.__struct_fields__)
    return values.Attempt(**(fields | {"run": run, "n": 1, "host": host, "environment": environment}))


def runs_of(made: list[tuple[str, str, float | None, dict[str, Any]]]) -> list[values.Run]:
    return [
        make_run(name, rung, seed, 0.5, speed=steps, execution=HERE) for seed, (name, rung, steps, _) in enumerate(made)
    ]


def build(
    made: list[tuple[str, str, float | None, dict[str, Any]]] = MADE,
    runs: list[values.Run] | None = None,
    ladder: catalog.Ladder = MINI,
    hosts: dict[str, str] | None = None,
    **more: Any,
) -> speed.Report:
    attempts = {name: attempt(name, where, (hosts or {}).get(name, "here")) for name, _, _, where in made}
    fields: dict[str, Any] = {"task": "sDigits", "profile": None, "instance": "k", "last_attempt": attempts.__getitem__}
    return speed.build(ladder, runs=runs_of(made) if runs is None else runs, **(fields | more))


def document(report: speed.Report) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render.render(report, "json"))
    return found


def body(report: speed.Report, width: int = 200) -> str:
    """The table itself: between the head and the foot."""
    return render.render(report, "table", width=width).split("\n\n")[1]


# Which runs a row holds


def test_a_row_holds_the_runs_of_a_rung_on_one_device_and_a_speedup_stays_on_it() -> None:
    rows = document(build())["rows"]
    found = [
        (r["rung"], r["device"], r["n"], r["steps_per_second"], r["stderr"], r["speedup"], r["runs"]) for r in rows
    ]
    assert found == [
        ("tanh-rnn", "Xeon", 3, 12.0, pytest.approx(1.1547005), 1.0, ["t0", "t1", "t2"]),
        ("diagonal", None, 0, None, None, None, []),
        ("lru", "Xeon", 2, 40.0, pytest.approx(10.0), pytest.approx(3.3333333), ["l0", "l2"]),
        # the first rung with runs on this device, and one run has no spread
        ("lru", "NVIDIA H100", 1, 600.0, None, 1.0, ["l1"]),
    ]


@pytest.mark.parametrize(
    ("execution", "environment", "field", "value"),
    [
        ({"threads": 2}, {}, "threads", 2),
        ({"steps_per_dispatch": 50}, {}, "steps_per_dispatch", 50),
        ({}, {"packed": 4}, "packed", 4),
        ({}, {"machine": {"cpu": "EPYC"}}, "device", "EPYC"),
    ],
)
def test_a_mean_never_mixes_settings(execution, environment, field, value) -> None:
    made = [
        ("a", "tanh-rnn", 10.0, XEON),
        ("b", "tanh-rnn", 30.0, XEON | environment),
        ("c", "lru", 90.0, XEON | environment),
    ]
    runs = runs_of(made)
    runs[1:] = [msgspec.structs.replace(run, execution=HERE | execution) for run in runs[1:]]
    rows = document(build(made, runs))["rows"]
    assert [(r["rung"], r["steps_per_second"], r["speedup"]) for r in rows if r["n"]] == [
        ("tanh-rnn", 10.0, 1.0),
        ("tanh-rnn", 30.0, 1.0),
        ("lru", 90.0, 3.0),
    ]
    assert [r[field] for r in rows] == [rows[0][field], value, None, value]
    assert rows[0][field] != value
    # what differs is a column, and is told with the speed-up; the rest is said once
    table = render.render(build(made, runs), "table")
    name = field.replace("steps_per_dispatch", "steps a dispatch")
    assert f"Speed-up: over tanh-rnn of the same {name}." in table
    assert re.search(rf"speed-up  {name} ", table)
    [shared] = [line for line in table.split("\n") if line.startswith("All runs: ")]
    assert f"{name} " not in shared


@pytest.mark.parametrize(
    ("environment", "device", "shown"),
    [
        (XEON, "Xeon", "device Xeon, "),
        ({"device": "cpu"}, "cpu", "device cpu, "),
        (H100 | {"machine": {"cpu": "Xeon"}}, "NVIDIA H100", "device NVIDIA H100, "),
        ({}, None, ""),
    ],
)
def test_a_cpu_is_named_by_its_model_and_what_is_not_recorded_is_not_guessed(environment, device, shown) -> None:
    report = build([("a", "tanh-rnn", 10.0, environment)])
    assert document(report)["rows"][0]["device"] == device
    assert f"\nAll runs: {shown}threads 1, steps a dispatch 25.\n" in render.render(report, "table")
    if device is None:
        report = build([("a", "tanh-rnn", 10.0, environment), ("b", "tanh-rnn", 10.0, XEON)])
        assert "not recorded" in body(report)


def test_runs_without_a_speed_tuning_runs_and_those_of_others_do_not_count() -> None:
    runs = [
        *runs_of([("a", "tanh-rnn", 10.0, XEON), ("b", "tanh-rnn", None, XEON), ("c", "tanh-rnn", float("inf"), XEON)]),
        make_run("d", "tanh-rnn", 3, 0.5, speed=99.0, state="diverged"),
        make_run("e", "tanh-rnn", 1000, 0.5, speed=99.0, stage="tune"),
        make_run("f", "tanh-rnn", 0, 0.5, speed=99.0, key="another instance"),
    ]
    report = build([("a", "tanh-rnn", 10.0, XEON)], runs)
    assert report.rows[0].runs == ("a",)
    assert report.notes == (
        "tanh-rnn: run b is done without a finite machine/steps_per_second and is not counted",
        "tanh-rnn: run c is done without a finite machine/steps_per_second and is not counted",
    )


def test_runs_of_unequal_data_are_refused() -> None:
    runs = runs_of(MADE)
    runs[1] = msgspec.structs.replace(runs[1], data_sha256="b" * 64)
    with pytest.raises(LrurunError, match="trained on unequal data"):
        build(runs=runs)


def test_a_rung_of_the_same_settings_has_the_runs_of_the_one_that_it_changes() -> None:
    report = build(MADE[:3], same_as_before={"diagonal"})
    rows = document(report)["rows"]
    assert [(r["runs"], r["speedup"], r["same_as_before"]) for r in rows] == [
        (["t0", "t1", "t2"], 1.0, False),
        (["t0", "t1", "t2"], 1.0, True),
        ([], None, False),
    ]
    assert report.notes == ("diagonal has the settings of tanh-rnn, and these are its runs",)


def test_hosts_and_code_versions_are_not_hidden() -> None:
    runs = runs_of(MADE)
    runs[1] = msgspec.structs.replace(runs[1], code=("0.2.0 def",))
    report = build(runs=runs, hosts={"l0": "there"})
    assert report.rows[0].code_versions == ("0.1.0 abc", "0.2.0 def")
    table = render.render(report, "table")
    assert "12.0 ± 1.15 (n=3), 2 code versions" in table
    assert "\nThese runs come from more than one code version: 0.1.0 abc, 0.2.0 def.\n" in table
    assert table.endswith("\nNote: these runs were made on more than one host: here, there")


# Published speeds


def test_published_speedups_are_over_the_first_rung_of_the_same_source_and_device() -> None:
    other = catalog.Speed(system="LRU", rung="lru", steps_per_second={"sDigits": 7.0}, source="Other", device="A100")
    report = build(ladder=msgspec.structs.replace(MINI, speeds=(*MINI.speeds, other)))
    rows = document(report)["rows"]
    one = {"system": "tanh RNN", "source": "Paper, Table 4", "device": "A100", "value": 2.0, "speedup": 1.0}
    lru = one | {"system": "LRU", "value": 15.0, "speedup": 7.5}
    alone = lru | {"source": "Other", "value": 7.0, "speedup": None}
    assert [row["published"] for row in rows] == [[one], [], [lru, alone], [lru, alone]]
    assert document(report)["published_others"] == [one | {"system": "S4D", "value": 13.0, "speedup": 6.5}]
    assert "15.0 (A100) / 7.0 (A100)  7.50× / –" in body(report)
    assert "Published: Paper, Table 4, on A100 (tanh-rnn, lru); Other, on A100 (lru)." in render.render(report, "table")


def test_a_task_without_published_speeds_has_no_column_of_them() -> None:
    table = render.render(build(task="ListOps"), "table")
    assert "its speed-up" not in table
    assert "\nPublished: no speeds for ListOps.\nSpeed-ups belong to their device" in table
    # where the ladder has none at all, there is nothing to compare with
    assert "A100" not in render.render(build(ladder=msgspec.structs.replace(MINI, speeds=())), "table")


TABLE_4 = """\
sCIFAR ListOps Text Retrieval Pathfinder PathX
tanh-rnn 2.0 1.1 0.5 0.5 2.1 0.14
LRU 15.9 (8x) 2.1 (1.9x) 14.7 (29x) 5.7 (11.4x) 15.5 (7.4x) 2.4 (17x)
S4D 13.5 2.2 10.6 3.0 24.5 2.6
S5 15.9 2.2 14.4 5.7 15.6 2.3"""


def test_the_published_speeds_are_those_of_the_paper() -> None:
    tasks, *lines = [line.split() for line in re.sub(r" \([\d.]+x\)", "", TABLE_4).split("\n")]
    ladder = catalog.load_ladder("lru")
    table = {(line[0], task): float(cell) for line in lines for task, cell in zip(tasks, line[1:], strict=True)}
    found = {
        (one.rung if one.rung == "tanh-rnn" else one.system.split()[0], task): value
        for one in ladder.speeds
        for task, value in one.steps_per_second.items()
    }
    assert found == table
    assert {(one.source, one.device) for one in ladder.speeds} == {("Orvieto et al. 2023, Table 4", "A100")}
    # the speed-ups that the paper prints, of the rung that is the whole LRU on the task
    for task, printed in zip(tasks, re.findall(r"\(([\d.]+)x\)", TABLE_4), strict=True):
        rows = document(build([], ladder=ladder, task=task))["rows"]
        [(rung, times)] = [
            (r["rung"], one["speedup"]) for r in rows for one in r["published"] if r["rung"] != "tanh-rnn"
        ]
        assert rung == ("small-phase" if task == "PathX" else "gamma-norm")
        assert times == pytest.approx(float(printed), rel=0.03)


# Formats

FOOT = """\
Steps/s: mean ± standard error over n finished seeds, each the steps of a run over the seconds that
they took, compilation and evaluation not counted; of an interrupted run, in its last attempt. It
depends on what else the machine does. Speed-up: over the first rung that has runs of the same
device.
All runs: threads 1, steps a dispatch 25.
Published: Paper, Table 4, on A100 (tanh-rnn, lru). Its speed-ups are over tanh-rnn, from the speeds
as printed. They are of the full task; profile laptop is smaller.
Published of systems that are no rung here: S4D 13.0, 6.50× (Paper, Table 4, A100).
Speed-ups belong to their device: those of a CPU do not compare with the published ones (A100).
Note: a note"""

TABLE_100 = """\
sDigits, profile laptop: training speed, three rungs

rung      steps/s            speed-up  device       parameters  published    its speed-up
────────  ─────────────────  ────────  ───────────  ──────────  ───────────  ────────────
tanh-rnn  12.0 ± 1.15 (n=3)  1.00×     Xeon         12,345      2.0 (A100)   1.00×
diagonal  – (n=0)            –         –            –           –            –
lru       40.0 ± 10.0 (n=2)  3.33×     Xeon         12,345      15.0 (A100)  7.50×
lru       600 (n=1)          1.00×     NVIDIA H100  12,345      15.0 (A100)  7.50×

"""

STACKED = """\
tanh-rnn
  12.0 ± 1.15 (n=3) steps/s
  speed-up 1.00×
  device Xeon
  published 2.0 (A100), 1.00×
diagonal
  – (n=0) steps/s
lru
  40.0 ± 10.0 (n=2) steps/s
  speed-up 3.33×
  device Xeon
  published 15.0 (A100), 7.50×
lru
  600 (n=1) steps/s
  speed-up 1.00×
  device NVIDIA H100
  published 15.0 (A100), 7.50×"""

MARKDOWN = """\
### sDigits, profile laptop: training speed, three rungs

| rung | title | steps/s | speed-up | device | parameters | published | its speed-up |
| --- | --- | ---: | ---: | --- | ---: | ---: | ---: |
| tanh-rnn | dense RNN | 12.0 ± 1.15 (n=3) | 1.00× | Xeon | 12,345 | 2.0 (A100) | 1.00× |
| diagonal | diagonal | – (n=0) | – | – | – | – | – |
| lru | the \\| whole | 40.0 ± 10.0 (n=2) | 3.33× | Xeon | 12,345 | 15.0 (A100) | 7.50× |
| lru | the \\| whole | 600 (n=1) | 1.00× | NVIDIA H100 | 12,345 | 15.0 (A100) | 7.50× |

"""

CSV = """\
task,ladder,profile,instance,metric,rung,title,n,steps_per_second,stderr,speedup,parameters,device,threads,packed,steps_per_dispatch,same_as_before,published_value,published_speedup,published_device,published_source,runs,code_versions
sDigits,mini,laptop,k,machine/steps_per_second,tanh-rnn,dense RNN,3,12.0,1.154700538,1.0,12345,Xeon,1,1,25,false,2.0,1.0,A100,"Paper, Table 4",t0 t1 t2,0.1.0 abc
sDigits,mini,laptop,k,machine/steps_per_second,diagonal,diagonal,0,,,,,,,,,false,,,,,,
sDigits,mini,laptop,k,machine/steps_per_second,lru,the | whole,2,40.0,10.0,3.333333333,12345,Xeon,1,1,25,false,15.0,7.5,A100,"Paper, Table 4",l0 l2,0.1.0 abc
sDigits,mini,laptop,k,machine/steps_per_second,lru,the | whole,1,600.0,,1.0,12345,NVIDIA H100,1,1,25,false,15.0,7.5,A100,"Paper, Table 4",l1,0.1.0 abc"""

JSON_ROW = {
    "rung": "lru",
    "title": "the | whole",
    "n": 1,
    "steps_per_second": 600.0,
    "stderr": None,
    "speedup": 1.0,
    "parameters": 12345,
    "device": "NVIDIA H100",
    "threads": 1,
    "packed": 1,
    "steps_per_dispatch": 25,
    "same_as_before": False,
    "published": [{"system": "LRU", "source": "Paper, Table 4", "device": "A100", "value": 15.0, "speedup": 7.5}],
    "runs": ["l1"],
    "code_versions": ["0.1.0 abc"],
}


def laptop() -> speed.Report:
    return build(profile="laptop", notes=["a note"])


def test_the_whole_table() -> None:
    assert render.render(laptop(), "table", width=100) == TABLE_100 + FOOT


def test_markdown_has_the_title_and_every_sentence_of_the_foot() -> None:
    sentences = re.sub(r"\n(?!All|Published|Speed-ups|Note)", " ", FOOT).split("\n")
    assert render.render(laptop(), "md") == MARKDOWN + "\n".join(f"- {sentence}" for sentence in sentences)


def test_csv() -> None:
    assert re.sub(r"(\.\d{9})\d+", r"\1", render.render(laptop(), "csv")) == CSV


def test_json() -> None:
    found = document(laptop())
    rows = found.pop("rows")
    assert found == {
        "schema_version": 1,
        "task": "sDigits",
        "ladder": "mini",
        "profile": "laptop",
        "instance": "k",
        "metric": "machine/steps_per_second",
        "published_others": [
            {"system": "S4D", "source": "Paper, Table 4", "device": "A100", "value": 13.0, "speedup": 6.5}
        ],
        "notes": ["a note"],
    }
    assert rows[3] == JSON_ROW
    assert all(list(row) == list(JSON_ROW) for row in rows)
    assert [row["threads"] for row in rows] == [1, None, 1, 1]


def test_every_format_has_the_same_numbers() -> None:
    rows = document(laptop())["rows"]
    lines = list(csv.DictReader(io.StringIO(render.render(laptop(), "csv"))))
    cells = [[one.strip() for one in line.split("|")] for line in MARKDOWN.replace("\\|", "/").split("\n")[4:8]]
    for row, line, cell, printed in zip(rows, lines, cells, body(laptop(), 100).split("\n")[2:], strict=True):
        for key in ("steps_per_second", "stderr", "speedup"):
            assert (float(line[key]) if line[key] else None) == row[key]
        assert int(line["n"]) == row["n"]
        score, times = cell[3], cell[4]
        assert re.search(rf"{re.escape(score)} +{times} ", printed)
        if row["n"]:
            number = float(score.split()[0])
            assert number == pytest.approx(row["steps_per_second"], rel=0.005)
            assert float(times[:-1]) == pytest.approx(row["speedup"], rel=0.005)


def test_narrow_terminals_lose_columns_and_no_number() -> None:
    assert "title" not in body(laptop(), 100)
    assert body(laptop(), 80).split("\n")[0].split() == [
        "rung",
        "steps/s",
        "speed-up",
        "device",
        "published",
        "its",
        "speed-up",
    ]
    assert body(laptop(), 70).split("\n")[0].split() == ["rung", "steps/s", "speed-up", "device", "published"]
    assert body(laptop(), 55).split("\n")[0].split() == ["rung", "steps/s", "speed-up", "device"]
    # without the device that tells two rows apart there is no table
    assert body(laptop(), 45) == STACKED
    for width in range(20, 120, 7):
        assert max(map(len, render.render(laptop(), "table", width=width).split("\n"))) <= width


def test_no_runs_make_a_table_of_nothing() -> None:
    report = build([])
    assert body(report, 60) == (
        "rung      steps/s  speed-up  published    its speed-up\n"
        "────────  ───────  ────────  ───────────  ────────────\n"
        "tanh-rnn  – (n=0)  –         2.0 (A100)   1.00×\n"
        "diagonal  – (n=0)  –         –            –\n"
        "lru       – (n=0)  –         15.0 (A100)  7.50×"
    )
    assert "Speed-up: over the first rung that has runs.\nPublished: " in render.render(report, "table")
    assert [row["n"] for row in document(report)["rows"]] == [0, 0, 0]


def test_text_from_files_and_the_ledger_is_data() -> None:
    evil = "=X(1)|\x1b[31m*y*\u202e"
    speeds = (catalog.Speed(system=evil, rung="a", source=evil, device=evil, steps_per_second={"sDigits": 1.0}),)
    others = (catalog.Speed(system=evil, source=evil, device=evil, steps_per_second={"sDigits": 1.0}),)
    ladder = catalog.Ladder(name="e", title=evil, source="s", rungs=(make_rung("a", evil),), speeds=speeds + others)
    report = build([("x", "a", 1.0, {"device": evil}), ("y", "a", 1.0, XEON)], ladder=ladder)
    for width in (30, 60, 200):
        assert not set(render.render(report, "table", width=width)) & {"\x1b", "\u202e"}
    markdown = render.render(report, "md")
    assert "=X(1)|" not in markdown
    assert not set(markdown) & {"\x1b", "\u202e"}
    assert r"=X(1)\|\*y\*" in markdown
    line = next(csv.DictReader(io.StringIO(render.render(report, "csv"))))
    assert (line["device"], line["published_device"]) == ("'=X(1)|*y*", "'=X(1)|*y*")


# The command


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the plain sCIFAR ladder: two finished runs of tanh-rnn, one of gamma-norm, one of gamma-norm on another device."""
    for name in ("LRURUN_LEDGER", "LRURUN_RUNS", "LRURUN_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    plan = planning.make("sCIFAR")
    path = tmp_path / "ledger.db"
    owner = values.Owner(host="here", boot="b", namespace="n", pid=1, pid_started=1.0)
    with Ledger.open(path) as opened:
        instance = opened.add_ladder("lru", "sCIFAR", None, plan.spec)
        for rung, seed, steps, where in (
            ("tanh-rnn", 0, 4.0, XEON),
            ("tanh-rnn", 1, 6.0, XEON),
            ("gamma-norm", 0, 20.0, XEON),
            ("gamma-norm", 1, 100.0, H100),
        ):
            [resolved] = planning.choose_rungs(plan, [rung])
            opened.enqueue(instance.key, planning.wanted_final(plan, resolved, [seed]))
            # an attempt elsewhere came first: the speed is of the last one
            claim = opened.claim(instance.key, owner, environment={"device": "elsewhere"})
            assert claim is not None
            opened.finish(claim, "interrupted")
            opened.requeue([claim.run.id])
            claim = opened.claim(instance.key, owner, environment=where)
            assert claim is not None
            opened.describe(claim, parameters=1000, data_sha256="d" * 64)
            opened.finish(claim, "done", result={"test/accuracy": 0.5, "machine/steps_per_second": steps}, step=1)
    return path


def lrurun(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = entry.run(["report", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command_prints_the_speeds_of_the_ledger(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = lrurun(capsys, "sCIFAR", "--speed", "--json")
    assert code == 0
    found = json.loads(out)
    shown = [(r["rung"], r["n"], r["steps_per_second"], r["speedup"], r["device"]) for r in found["rows"] if r["n"]]
    assert shown == [
        ("tanh-rnn", 2, 5.0, 1.0, "Xeon"),
        ("gamma-norm", 1, 20.0, 4.0, "Xeon"),
        ("gamma-norm", 1, 100.0, 1.0, "NVIDIA H100"),
    ]
    assert found["rows"][0]["stderr"] == pytest.approx(1.0)
    assert [r["rung"] for r in found["rows"]].count("gamma-norm") == 2
    assert len(found["rows"]) == 9
    table = lrurun(capsys, "sCIFAR", "--speed")[1]
    assert re.search(r"^tanh-rnn .*  5.00 ± 1.00 \(n=2\)  1.00× .* 2.0 \(A100\)   1.00×$", table, re.MULTILINE)
    assert re.search(r"^gamma-norm .*  20.0 \(n=1\)  +4.00×     Xeon .* 15.9 \(A100\)  7.95×$", table, re.MULTILINE)
    assert "S4D (their reproduction) 13.5, 6.75× (Orvieto et al. 2023, Table 4, A100); S5 (their" in table
    code, out, _ = lrurun(capsys, "sCIFAR", "--speed", "--limit", "2", "--format", "csv")
    assert [line["rung"] for line in csv.DictReader(io.StringIO(out))] == ["tanh-rnn", "linear-rnn"]
    code, out, _ = lrurun(capsys, "sCIFAR", "--speed", "--format", "md", "--out", "speed.md")
    assert (code, out) == (0, "")
    assert Path("speed.md").read_text().startswith("### sCIFAR: training speed, from a tanh RNN to the ")
    instance = found["instance"]
    assert json.loads(lrurun(capsys, "sCIFAR", "--speed", "--json", "--instance", instance)[1]) == found
    # the other table is as it was
    assert "test accuracy" in lrurun(capsys, "sCIFAR")[1]


def test_without_results_the_command_says_so(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = lrurun(capsys, "sDigits", "--speed")
    assert (code, out) == (4, "")
    assert err.startswith("error: ladder lru on sDigits: not in this ledger\nhint: ")
    code, out, err = lrurun(capsys, "sCIFAR", "--speed", "--ledger", "none.db")
    assert (code, out) == (4, "")
    assert err == "error: none.db: there is no ledger, so there are no results\nhint: run: lrurun ladder sCIFAR\n"
    assert not Path("none.db").exists()
