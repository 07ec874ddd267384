"""What a program reports: which lines a worker takes, which wait, and which it refuses."""

from __future__ import annotations

import json
import math
import posixpath
from pathlib import Path

import pytest

from lrurun.programs import reports
from lrurun.programs.reports import Reports, WrongReport


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    path.touch()
    return path


def test_a_line_counts_when_it_is_finished(file: Path) -> None:
    """A program may be writing it just now; at its end the last line needs no end."""
    reader = Reports(file)
    assert list(reader.rows()) == []
    file.write_text('{"step": 1, "val/a": 0.5}\n\n{"step": 2, "va')
    assert list(reader.rows()) == [(1, {"val/a": 0.5})]
    assert list(reader.rows()) == []
    with file.open("a") as more:
        more.write('l/a": 2}\n{"step": 3.0}\r\n{"val/a": 4, "step": 3}')
    assert list(reader.rows()) == [(2, {"val/a": 2.0}), (3, {})]
    assert list(reader.rows(last=True)) == [(3, {"val/a": 4.0})]
    assert list(reader.rows(last=True)) == []


def test_every_spelling_of_no_number_is_a_value(file: Path) -> None:
    """As Python's json writes them; a whole number may be larger than any fraction."""
    big = f"1{'0' * 400}"
    file.write_text(
        f'{{"step": 0, "a": NaN, "c": Infinity, "d": -Infinity, "e": {big}, "f": -{big}, "g": 1{"0" * 308}}}\n'
    )
    [(step, values)] = Reports(file).rows()
    assert step == 0
    assert math.isnan(values.pop("a"))
    assert values == {"c": math.inf, "d": -math.inf, "e": math.inf, "f": -math.inf, "g": 1e308}


def test_null_is_a_value_that_was_not_measured(file: Path) -> None:
    """As if the line did not name it."""
    file.write_text('{"step": 0, "loss": null, "val/a": 0.5}\n{"step": 1, "loss": null}\n')
    assert list(Reports(file).rows()) == [(0, {"val/a": 0.5}), (1, {})]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("accuracy: 0.9", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\0\xff", "is not JSON"),
        ("[1, 2]", "is not a JSON object"),
        ("3", "is not a JSON object"),
        ('{"val/a": 1}', "has no valid step"),
        ('{"step": 1.5}', "has no valid step"),
        ('{"step": -1}', "has no valid step"),
        ('{"step": true}', "has no valid step"),
        ('{"step": "3"}', "has no valid step"),
        ('{"step": 2147483648}', "has no valid step"),
        ('{"step": NaN}', "has no valid step"),
        ('{"step": Infinity}', "has no valid step"),
        ('{"step": 2}', "has step 2, after step 3"),
        ('{"step": 3, "val/a": "0.9"}', 'has val/a = "0.9", expected a number'),
        ('{"step": 3, "val/a": true}', "has val/a = true, expected a number"),
        ('{"step": 3, "val/a": [1]}', "has val/a = [1], expected a number"),
        (f'{{"step": 3, "a": "{"x" * 99}"}}', f'has a = "{"x" * 36}..., expected a number'),
        ('{"step": 3, "": 1}', "has a metric with the name ''"),
        ('{"step": 3, "1a": 1}', "has a metric with the name '1a'"),
        ('{"step": 3, "val a": 1}', "has a metric with the name 'val a'"),
        ('{"step": 3, "machine/x": 1}', "has the metric 'machine/x'"),
        ('{"step": 3, "\\u00e9a": 1}', "has a metric with the name"),
        ('{"step": 3, "val//x": 1}', "has a metric with the name 'val//x'"),
        ('{"step": 3, "val//x": null}', "has a metric with the name 'val//x'"),
        ('{"step": 3, "a/./b": 1}', "has a metric with the name 'a/./b'"),
        ('{"step": 3, "a/../c": 1}', "has a metric with the name 'a/../c'"),
        ('{"step": 3, "a/.../c": 1}', "has a metric with the name 'a/.../c'"),
        ('{"step": 3, "tail/": 1}', "has a metric with the name 'tail/'"),
        ('{"step": 3, "tail/..": 1}', "has a metric with the name 'tail/..'"),
        ('{"step": 3, "/a": 1}', "has a metric with the name '/a'"),
        ('{"step": 3, ".a": 1}', "has a metric with the name '.a'"),
        ('{"step": 3, "a\\n": 1}', "has a metric with the name 'a\\n'"),
        (f'{{"step": 3, "{"x" * 101}": 1}}', f"has a metric with the name '{'x' * 40}'"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(file: Path, line: str, message: str) -> None:
    file.write_text(f'\n{{"step": 3, "val/a": 0.5}}\n{line}\n', encoding="latin-1")
    rows = Reports(file).rows()
    assert next(rows) == (3, {"val/a": 0.5})
    with pytest.raises(WrongReport) as caught:
        next(rows)
    assert caught.value.message.startswith(f"line 3 of the program's metrics {message}")
    assert caught.value.hint


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_line_that_is_too_long_is_refused_before_it_ends(
    file: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for lines, not for what a program writes between two looks."""
    monkeypatch.setattr(reports, "LONGEST_LINE", 1_000)
    file.write_text(f'{{"step": 1, "a": {" " * 980}1}}\n' * 3)
    assert len(list(Reports(file).rows())) == 3
    file.write_text(f'{{"step": 1, "a": {" " * 990}1}}{end}')
    with pytest.raises(WrongReport, match=r"^line 1 of the program's metrics is longer than 1,000 bytes$"):
        list(Reports(file).rows())


def test_the_numbers_of_metrics_and_values_are_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_NAMES", 3)
    monkeypatch.setattr(reports, "MOST_VALUES", 6)
    file.write_text('{"step": 1, "a": 1, "b": 1}\n{"step": 1, "b": 1, "c": 1}\n')
    reader = Reports(file)
    assert len(list(reader.rows())) == 2
    with file.open("a") as more:
        more.write('{"step": 2, "d": 1}\n')
    with pytest.raises(WrongReport, match=r"^line 3 of the program's metrics names more than 3 different metrics$"):
        list(reader.rows())
    file.write_text('{"step": 1, "a": 1, "b": 1}\n' * 4)
    rows = Reports(file).rows()
    assert [step for step, _ in (next(rows), next(rows), next(rows))] == [1, 1, 1]
    with pytest.raises(WrongReport, match=r"^the program has reported more than 6 values$"):
        next(rows)


def test_a_name_may_be_that_of_a_further_test(file: Path) -> None:
    names = ["test@256/accuracy", "val/top-5_acc.x", "val/.x/..y/z.", "val/-/_/@", "a" * 100, "val/0"]
    file.write_text(json.dumps({"step": 1, **dict.fromkeys(names, 0.5)}) + "\n")
    assert list(Reports(file).rows()) == [(1, dict.fromkeys(names, 0.5))]
    assert all(posixpath.normpath(name) == name for name in names)
