"""Files with the metrics of a run, in any of their formats, and the points that are collected of them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from lrurun.errors import UsageError
from lrurun.trackers.numbers import number_of_text, step_of_text
from lrurun.trackers.points import JsonLines, MetricsFile, Points


@pytest.fixture
def read(tmp_path):
    def of(name, content, items="", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        points = Points(None)
        file = MetricsFile(path, items)
        file.read(points, **options)
        curves = {metric: (curve.steps.tolist(), curve.values.tolist()) for metric, curve in points.curves.items()}
        return points, curves, file

    return of


def test_json_object(read):
    points, curves, file = read(
        "m.json", '{"test": {"acc": 0.5, "n": 3}, "loss": NaN, "name": "x", "ok": true, "a": [1]}'
    )
    assert math.isnan(points.last.pop("loss"))
    assert (points.last, points.last_step, curves, file.notes) == ({"test/acc": 0.5, "test/n": 3}, None, {}, [])
    assert read("m.json", '{\n "epoch": 7,\n "acc": -Infinity\n}')[1] == {"acc": ([7], [-math.inf])}


def test_rows_of_json(read):
    lines = '{"step": 0, "a": 1}\n\n{"step": 5, "a": 2, "epoch": 1}\n{"step": 3, "a": 3}\n'
    points, curves, _ = read("m.jsonl", lines)
    assert curves == {"a": ([0, 5, 3], [1, 2, 3]), "epoch": ([5], [1])}
    assert (points.last["a"], points.last_step) == (3, 5)
    assert read("m.json", json.dumps([json.loads(line) for line in lines.split("\n") if line]))[1] == curves
    _, curves, file = read("m.json", '{"a": 1}\n{"a": 2}')
    assert curves == {"a": ([0, 1], [1, 2])}
    assert "rows are numbered from 0" in file.notes[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", "step,a,b\n0,1,\n5,,2\n"),
        ("m.csv", "\ufeffstep,a,b\r\n0,1,\r\n5,,2\r\n"),
        ("m.csv", "a,step,b\n1,0,\n,5.0,2\n"),
        ("m.csv", "step;a;b\n0;1;\n5;;2\n"),
        ("m.csv", '"step","a","b"\n"0","1",""\n\n"5","","2"\n'),
        ("m.tsv", "step\ta\tb\n0\t1\t\n5\t\t2\n"),
        ("m.txt", "step, a, b, text\n0, 1, , x\u2028y\n5, , 2, 1_0\n"),
    ],
)
def test_tables(read, name, text):
    _, curves, file = read(name, text)
    assert (curves, file.notes) == ({"a": ([0], [1]), "b": ([5], [2])}, [])


def test_a_quote_in_tsv_is_a_character(read):
    assert read("m.tsv", 'step\tname\ta\n0\t"x\t1\n1\ty\t2\n')[1] == {"a": ([0, 1], [1, 2])}


def test_columns_of_steps(read):
    assert read("m.csv", "epoch,_step,a\n1,10,1\n")[1] == {"a": ([10], [1]), "epoch": ([10], [1])}
    points, curves, file = read("m.csv", "a\n1\nnan\n")
    assert curves["a"][0] == [0, 1]
    assert "rows are numbered from 0" in file.notes[0]
    points, curves, file = read("m.csv", "step,a\n0.5,1\n")
    assert (points.last, curves) == ({"a": 1}, {})
    assert read("m.csv", "a,b\n1,2\n")[2].notes == []  # one row needs no number


def test_last_lines(read):
    note = "the last line is half written and left out"
    assert read("m.csv", "step,a\n0,1\n1")[2].notes[0].endswith(note)
    _, curves, file = read("m.csv", "step,a\n0,1\n1,2")
    assert curves == {"a": ([0, 1], [1, 2])}
    assert "its last number may be cut off" in file.notes[0]
    assert read("m.csv", "step,a\n0,1\n1,2\n")[2].notes == []
    _, curves, file = read("m.csv", "step,a\n0,1\n1,2", ends_with_line=True)
    assert (curves, len(file.notes)) == ({"a": ([0], [1])}, 1)
    for end in ('{"step": 1, "a', '{"step": 1, "a\n', '{"step": 1, "a": 2\n\n', '{"step": 1, "a": "\xff'):
        content = b'{"step": 0, "a": 1}\n' + end.encode("latin-1")
        if end.endswith("\xff"):
            with pytest.raises(UsageError, match="not UTF-8"):
                read("m.jsonl", content)
            continue
        if end.endswith("\n\n"):
            with pytest.raises(UsageError, match="line 2: is not JSON"):
                read("m.jsonl", content)
            continue
        _, curves, file = read("m.jsonl", content)
        assert curves == {"a": ([0], [1])}
        assert file.notes[0].endswith(note)
    assert read("m.json", "")[0].last == {}
    assert read("m.csv", "\n\n")[0].last == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("m.csv", "a,b\n1,2\n1\n1,2\n", "line 3: has 1 cells, and the header has 2"),
        ("m.csv", "a,b\n1,2\n1,2,3\n", "line 3: has 3 cells"),
        ("m.csv", "a, a\n1,2\n", "two columns have the name 'a'"),
        ("m.csv", 'a,b\n1,"' + "x" * 200_000 + '"\n', "line 2: field larger"),
        ("m.csv", 'a,b\n1,"2\n3,4\n', "line 3: unexpected end of data"),
        ("m.csv", b"a\n\xe4\n", "not UTF-8"),
        ("m.jsonl", '{"a": 1}\n[1]\n', "line 2: expected a JSON object"),
        ("m.jsonl", '{"a": 1}\nx\n{"a": 2}\n', "line 2: is not JSON"),
        ("m.json", "[1, 2]", "expected JSON objects"),
    ],
)
def test_damaged_files(read, name, content, message):
    with pytest.raises(UsageError) as caught:
        read(name, content)
    assert message in caught.value.message
    assert name in caught.value.message


def test_per_item_results(read):
    assert read("m.json", '{"acc": 0.5, "items": [1, true, 0.0]}', items="items")[2].items == [1, 1, 0]
    assert read("m.jsonl", '{"items": [1]}\n{"items": [0]}\n', items="items")[2].items == [0]
    assert read("m.json", '{"acc": 0.5, "items": [1]}')[2].items is None
    with pytest.raises(UsageError, match='item 1 is "x", expected a number'):
        read("m.json", '{"items": [1, "x"]}', items="items")


def test_numbers_in_cells():
    assert [number_of_text(text) for text in ("1", " 1e-3 ", "1_0", "x", "")] == [1, 0.001, None, None, None]
    assert math.isnan(number_of_text("nan"))
    steps = ["3", "4.0", "-1", " 5", str(2**63 - 1), str(2**63), "1e400", "0.5", "x", "nan", "inf", "", "\u0663"]
    assert [step_of_text(step) for step in steps] == [3, 4, -1, 5, 2**63 - 1, *[None] * 7, 3]


def test_curves_that_are_kept():
    points = Points({"a"})
    points.add("a", 1.0, 3)
    points.add("a", 2.0, 1)
    points.add("a", 9.0, None)
    points.add("b", 5.0, 7)
    assert points.curves.keys() == {"a"}
    assert points.curves["a"].steps.dtype == np.int64
    assert points.curves["a"].steps.tolist() == [3, 1]
    assert (points.last, points.last_step) == ({"a": 9.0, "b": 5.0}, 7)


def test_lines_can_be_read_again(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    lines = JsonLines(path)
    assert list(lines) == [{"a": 1}]
    assert lines.half_written
    path.write_text('{"a": 1}\n{"a": 2}')
    assert list(lines) == [{"a": 1}, {"a": 2}]
    assert not lines.half_written
