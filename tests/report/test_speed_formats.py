# ruff: noqa: E501 (whole outputs are compared as they are)
"""Training speeds as a table, Markdown, CSV and JSON, with the same numbers in every format."""

from __future__ import annotations

import csv
import io
import re

import pytest

from lrurun.config.ladder import Ladder, TrainingSpeed
from lrurun.report import formats
from tests.harness.reports import make_rung
from tests.harness.speeds import XEON, body, build, document, laptop

FOOT = """\
Steps/s: mean ± standard error over n finished seeds. Compilation and evaluation are not counted; of
an interrupted run, only the last attempt is. Other work on the machine lowers it. Speed-up: over
the first rung that has runs of the same device, with the least and the greatest ratio of two seeds;
none where a rung has one.
All runs: threads 1, steps a dispatch 25.
Published: Paper, Table 4, on A100 (tanh-rnn, lru). Its speed-ups are over tanh-rnn, from the speeds
as printed. They are for the plain recipe, not for profile laptop.
Published for systems that are not rungs here: S4D 13.0, 6.50× (Paper, Table 4, A100).
Speed-ups depend on the device: those of a CPU cannot be compared with the published ones (A100).
Note: a note"""

TABLE_100 = """\
training speed, three rungs on sDigits, profile laptop, without --tune

rung      steps/s                      speed-up  device       parameters    published  its speed-up
────────  ─────────────────  ──────────────────  ───────────  ──────────  ───────────  ────────────
tanh-rnn  12.0 ± 1.15 (n=3)               1.00×  Xeon             12,345   2.0 (A100)         1.00×
diagonal  – (n=0)                             –  –                     –            –             –
lru       40.0 ± 10.0 (n=2)  3.33× [2.14, 5.00]  Xeon             12,345  15.0 (A100)         7.50×
lru       600 (n=1)                       1.00×  NVIDIA H100      12,345  15.0 (A100)         7.50×

"""

STACKED = """\
tanh-rnn
  steps/s: 12.0 ± 1.15 (n=3)
  speed-up: 1.00×
  device: Xeon
  published: 2.0 (A100)
  its speed-up: 1.00×
diagonal
  steps/s: – (n=0)
lru
  steps/s: 40.0 ± 10.0 (n=2)
  speed-up: 3.33× [2.14, 5.00]
  device: Xeon
  published: 15.0 (A100)
  its speed-up: 7.50×
lru
  steps/s: 600 (n=1)
  speed-up: 1.00×
  device: NVIDIA H100
  published: 15.0 (A100)
  its speed-up: 7.50×"""

MARKDOWN = """\
### training speed, three rungs on sDigits, profile laptop, without --tune

| rung | title | steps/s | speed-up | device | parameters | published | its speed-up |
| --- | --- | --- | ---: | --- | ---: | ---: | ---: |
| tanh-rnn | dense RNN | 12.0 ± 1.15 (n=3) | 1.00× | Xeon | 12,345 | 2.0 (A100) | 1.00× |
| diagonal | diagonal | – (n=0) | – | – | – | – | – |
| lru | the \\| whole | 40.0 ± 10.0 (n=2) | 3.33× [2.14, 5.00] | Xeon | 12,345 | 15.0 (A100) | 7.50× |
| lru | the \\| whole | 600 (n=1) | 1.00× | NVIDIA H100 | 12,345 | 15.0 (A100) | 7.50× |

"""

CSV = """\
task,ladder,profile,instance,metric,rung,title,n,steps_per_second,stderr,speedup,speedup_low,speedup_high,parameters,device,threads,packed,steps_per_dispatch,same_as_before,published_value,published_speedup,published_device,published_source,runs,code_versions,numerics,label
sDigits,mini,laptop,k,machine/steps_per_second,tanh-rnn,dense RNN,3,12.0,1.154700538,1.0,,,12345,Xeon,1,1,25,false,2.0,1.0,A100,"Paper, Table 4",t0 t1 t2,0.1.0 abc,2,"sDigits, profile laptop, without --tune"
sDigits,mini,laptop,k,machine/steps_per_second,diagonal,diagonal,0,,,,,,,,,,,false,,,,,,,,"sDigits, profile laptop, without --tune"
sDigits,mini,laptop,k,machine/steps_per_second,lru,the | whole,2,40.0,10.0,3.333333333,2.142857142,5.0,12345,Xeon,1,1,25,false,15.0,7.5,A100,"Paper, Table 4",l0 l2,0.1.0 abc,2,"sDigits, profile laptop, without --tune"
sDigits,mini,laptop,k,machine/steps_per_second,lru,the | whole,1,600.0,,1.0,,,12345,NVIDIA H100,1,1,25,false,15.0,7.5,A100,"Paper, Table 4",l1,0.1.0 abc,2,"sDigits, profile laptop, without --tune"
""".rstrip()

JSON_ROW = {
    "rung": "lru",
    "title": "the | whole",
    "n": 1,
    "steps_per_second": 600.0,
    "stderr": None,
    "speedup": 1.0,
    "speedup_low": None,
    "speedup_high": None,
    "parameters": 12345,
    "device": "NVIDIA H100",
    "threads": 1,
    "packed": 1,
    "steps_per_dispatch": 25,
    "same_as_before": False,
    "published": [
        {
            "system": "LRU",
            "source": "Paper, Table 4",
            "device": "A100",
            "value": 15.0,
            "relative_time": None,
            "speedup": 7.5,
        }
    ],
    "runs": ["l1"],
    "code_versions": ["0.1.0 abc"],
    "numerics": [2],
}


def test_the_whole_table() -> None:
    assert formats.render(laptop(), "table", width=100) == TABLE_100 + "Not shown at this width: title.\n" + FOOT


def test_markdown_has_the_title_and_every_sentence_of_the_foot() -> None:
    sentences = re.sub(r"\n(?!All|Published|Speed-ups|Note)", " ", FOOT).split("\n")
    assert formats.render(laptop(), "md") == MARKDOWN + "\n".join(f"- {sentence}" for sentence in sentences)


def test_csv() -> None:
    assert re.sub(r"(\.\d{9})\d+", r"\1", formats.render(laptop(), "csv")) == CSV


def test_json() -> None:
    found = document(laptop())
    rows = found.pop("rows")
    assert found == {
        "schema_version": 1,
        "task": "sDigits",
        "ladder": "mini",
        "title": "three rungs",
        "profile": "laptop",
        "instance": "k",
        "metric": "machine/steps_per_second",
        "published_others": [
            {
                "system": "S4D",
                "source": "Paper, Table 4",
                "device": "A100",
                "value": 13.0,
                "relative_time": None,
                "speedup": 6.5,
            }
        ],
        "bases": ["tanh-rnn", "lru"],
        "devices": ["A100"],
        "notes": [{"text": "a note", "runs": []}],
        "set": {},
        "data": {},
        "label": "sDigits, profile laptop, without --tune",
        "tune": False,
    }
    assert rows[3] == JSON_ROW
    assert all(list(row) == list(JSON_ROW) for row in rows)
    assert [row["threads"] for row in rows] == [1, None, 1, 1]


def test_every_format_has_the_same_numbers() -> None:
    rows = document(laptop())["rows"]
    lines = list(csv.DictReader(io.StringIO(formats.render(laptop(), "csv"))))
    cells = [[one.strip() for one in line.split("|")] for line in MARKDOWN.replace("\\|", "/").split("\n")[4:8]]
    for row, line, cell, printed in zip(rows, lines, cells, body(laptop(), 100).split("\n")[2:], strict=True):
        for key in ("steps_per_second", "stderr", "speedup"):
            assert (float(line[key]) if line[key] else None) == row[key]
        assert int(line["n"]) == row["n"]
        score, times = cell[3], cell[4]
        assert re.search(rf"{re.escape(score)} +{re.escape(times)} ", printed)
        if row["n"]:
            number = float(score.split()[0])
            assert number == pytest.approx(row["steps_per_second"], rel=0.005)
            assert float(times.partition("×")[0]) == pytest.approx(row["speedup"], rel=0.005)


def test_narrow_terminals_lose_columns_and_no_number() -> None:
    assert "title" not in body(laptop(), 100)
    head = ["rung", "steps/s", "speed-up", "device", "published", "its", "speed-up"]
    for width, names in ((90, head), (80, head[:5]), (65, head[:4])):
        assert body(laptop(), width).split("\n")[0].split() == names
    # without the device, which distinguishes two rows, there is no table
    assert body(laptop(), 55) == STACKED
    for width in range(20, 120, 7):
        assert max(map(len, formats.render(laptop(), "table", width=width).split("\n"))) <= width


def test_no_runs_make_a_table_of_nothing() -> None:
    report = build([])
    assert body(report, 60) == (
        "rung      steps/s  speed-up    published  its speed-up\n"
        "────────  ───────  ────────  ───────────  ────────────\n"
        "tanh-rnn  – (n=0)         –   2.0 (A100)         1.00×\n"
        "diagonal  – (n=0)         –            –             –\n"
        "lru       – (n=0)         –  15.0 (A100)         7.50×"
    )
    assert "Speed-up: over the first rung that has runs, with" in formats.render(report, "table")
    assert [row["n"] for row in document(report)["rows"]] == [0, 0, 0]


def test_text_from_files_and_the_ledger_is_data() -> None:
    evil = "=X(1)|\x1b[31m*y*\u202e"
    speeds = (TrainingSpeed(system=evil, rung="a", source=evil, device=evil, steps_per_second={"sDigits": 1.0}),)
    others = (TrainingSpeed(system=evil, source=evil, device=evil, steps_per_second={"sDigits": 1.0}),)
    ladder = Ladder(name="e", title=evil, source="s", rungs=(make_rung("a", evil),), speeds=speeds + others)
    report = build([("x", "a", 1.0, {"device": evil}), ("y", "a", 1.0, XEON)], ladder=ladder)
    for width in (30, 60, 200):
        assert not set(formats.render(report, "table", width=width)) & {"\x1b", "\u202e"}
    markdown = formats.render(report, "md")
    assert "=X(1)|" not in markdown
    assert not set(markdown) & {"\x1b", "\u202e"}
    assert r"=X(1)\|\*y\*" in markdown
    line = next(csv.DictReader(io.StringIO(formats.render(report, "csv"))))
    assert (line["device"], line["published_device"]) == ("'=X(1)|*y*", "'=X(1)|*y*")
