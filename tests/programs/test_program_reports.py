"""What a program reports: which lines a worker takes, which wait, and which it refuses."""

from __future__ import annotations

import hashlib
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
        ('{"step": 3, "items": "test//a", "values": [1]}', "has a metric with the name 'test//a'"),
        ('{"step": 3, "values": [1]}', "has values = [1], expected a number"),
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


def test_lines_with_results_of_items_are_no_rows(file: Path) -> None:
    """They may come before or after the score, of an earlier step too; the last one of a step counts. A metric may be
    called items."""
    file.write_text(
        '{"step": 4, "items": "test/a", "values": [1, 0]}\n'
        '{"step": 3, "test/a": 0.5, "items": 2}\n'
        '{"step": 3, "items": "test/a", "values": [true, false, 0.25], "weights": [1, 0, 2.0]}\n'
        '{"ids": ["x", 1], "groups": ["b", "c"], "values": [1, NaN], "items": "test@9/b", "step": 2.0}\n'
        '{"step": 3, "items": "test/a", "values": [0, 1, 1]}\n{"step": 3, "items": "test/a", "val'
    )
    reader = Reports(file)
    assert list(reader.rows()) == [(3, {"test/a": 0.5, "items": 2.0})]
    assert reader.first_step == 3
    assert (reader.scores_with_items, reader.steps_of_items("test/a")) == (["test/a", "test@9/b"], [4, 3])
    items = reader.items("test/a", 3)
    assert items is not None
    assert items.sums.tolist() == [0, 1, 1]
    assert (items.test_set.count, items.test_set.order, items.test_set.weights, items.test_set.groups) == (
        *(3, ""),
        *(None, None),
    )
    other = reader.items("test@9/b", 2)
    assert other is not None
    assert other.test_set.order == hashlib.sha256(b'["x", 1]').hexdigest()
    assert other.test_set.groups is not None
    assert other.test_set.groups.tolist() == [0, 1]
    assert reader.items("test/a", 5) is None
    with file.open("a") as more:
        more.write('ues": [1, 1, 0], "weights": [1, 0, 2.0]}\n')
    assert list(reader.rows()) == []
    items = reader.items("test/a", 3)
    assert items is not None
    assert items.sums.tolist() == [1, 0, 0]
    assert items.mean == 1 / 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('"items": "test/a"', "has items without values"),
        ('"items": "test/a", "values": null', "has items without values"),
        ('"items": "test/a", "values": 1', "has no list as values"),
        ('"items": "test/a", "values": []', "has 0 as values"),
        ('"items": "test/a", "values": [1, "0"]', 'has "0" among values, expected numbers'),
        ('"items": "test/a", "values": [1, null]', "has null among values, expected numbers"),
        ('"items": "test/a", "values": [[1]]', "has [1] among values, expected numbers"),
        ('"items": "test/a", "values": [1, 0], "weights": [1]', "has 1 weights for 2 values"),
        ('"items": "test/a", "values": [1, 0], "weights": [1, -1]', "has weights that are negative, not finite or all"),
        ('"items": "test/a", "values": [1, 0], "weights": [1, NaN]', "has weights that are negative, not finite or"),
        (
            '"items": "test/a", "values": [1, 0], "weights": [0, 0]',
            "has weights that are negative, not finite or all",
        ),
        ('"items": "test/a", "values": [1, 0], "groups": [1, 1.5]', "has 1.5 among groups, expected names or whole"),
        ('"items": "test/a", "values": [1, 0], "groups": ["a"]', "has 1 groups for 2 values"),
        (
            '"items": "test/a", "values": [1, 0], "groups": ["a", "a"]',
            "has one group alone, which says nothing of others",
        ),
        ('"items": "test/a", "values": [1, 0], "ids": ["a", "a"]', "has the same id twice"),
        ('"items": "test/a", "values": [1, 0], "test/a": 0.5', "has items and 'test/a'"),
        ('"items": "test/a", "value": [1]', "has items and 'value'"),
    ],
)
def test_a_wrong_line_with_items_is_refused_with_its_number(file: Path, line: str, message: str) -> None:
    """When its items are needed: other lines are read all the same."""
    file.write_text(f'{{"step": 3, "val/a": 0.5}}\n{{"step": 3, {line}}}\n{{"step": 4, "val/a": 0.5}}\n')
    reader = Reports(file)
    assert list(reader.rows()) == [(3, {"val/a": 0.5}), (4, {"val/a": 0.5})]
    with pytest.raises(WrongReport) as caught:
        reader.items("test/a", 3)
    assert caught.value.message.startswith(f"line 2 of the program's metrics {message}")
    assert caught.value.hint


@pytest.mark.parametrize("before", [0, 1, *range(85, 105), 1000])
def test_items_are_found_without_reading_the_lines(file: Path, before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across the end of a block."""
    monkeypatch.setattr(reports, "_BLOCK", 100)
    lines = '{"step": 1, "test/a": 0.5}\n' * (before // 27 + 1)
    file.write_text(lines[:before] + '"items": "test/a"')
    assert reports.mentions_items(file)
    file.write_text(lines + '{"step": 1, "test/items": 0.5}\n')
    assert not reports.mentions_items(file)


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"step": 3, "items": "test/a", "values"',
        "[1, 0]",
        '{"step": 3, "items": "test/b", "values": [1, 0]}',
        '{"step": 4, "items": "test/a", "values": [1, 0]}',
        '{"step": 4, "test/a": 0.5}',
        "[" * 10**6,
        "\xff",
    ],
)
def test_a_line_with_items_that_has_changed_since_is_refused(file: Path, line: str) -> None:
    file.write_text('{"step": 3, "items": "test/a", "values": [1, 0]}\n'.ljust(len(line)))
    reader = Reports(file)
    reader.read()
    assert reader.items("test/a", 3) is not None
    file.write_text(line, encoding="latin-1")
    with pytest.raises(WrongReport, match=r"^line 1 of the program's metrics has changed since it was logged$"):
        reader.items("test/a", 3)
    file.unlink()
    with pytest.raises(WrongReport, match=r"^line 1 of the program's metrics cannot be read: No such file"):
        reader.items("test/a", 3)


def test_a_million_items_are_a_line(file: Path) -> None:
    """Which has its own limit, and arrives in many blocks: other lines are still refused before they end."""
    values = [1 / 3 + step / 10**7 for step in range(10**6)]
    names = [f"speaker {number % 1000}" for number in range(10**6)]
    line = json.dumps({"groups": names, "items": "test/a", "step": 1, "values": values})
    assert len(line) > 2 * 10**7
    file.write_text(f'{line}\n{{"step": 1, "test/a": 0.5}}\n')
    reader = Reports(file)
    rows = list(reader.rows())
    while reader.is_behind:
        rows += reader.rows()
    assert rows == [(1, {"test/a": 0.5})]
    items = reader.items("test/a", 1)
    assert items is not None
    assert items.sums.tolist() == values
    assert items.test_set.groups is not None
    assert items.test_set.groups[[0, 999, 1000, 1001]].tolist() == [0, 999, 0, 1]
    file.write_text(json.dumps({"step": 1, "items": "test/a", "values": [0] * (10**6 + 1)}) + "\n")
    reader = Reports(file)
    reader.read()
    with pytest.raises(WrongReport, match=r"^line 1 of the program's metrics has 1,000,001 as values$"):
        reader.items("test/a", 1)


def test_the_length_and_number_of_lines_with_items_are_limited(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "LONGEST_LINE", 100)
    monkeypatch.setattr(reports, "LONGEST_ITEMS", 1_000)
    monkeypatch.setattr(reports, "MOST_SCORES", 2)
    file.write_text('{"step": 1, "items": "test/a", "values": [' + "0, " * 500)
    with pytest.raises(WrongReport, match=r"^line 1 of the program's metrics is longer than 1,000 bytes$"):
        list(Reports(file).rows())
    file.write_text("".join(f'{{"step": 1, "items": "test/{name}", "values": [1]}}\n' for name in "aabc"))
    with pytest.raises(WrongReport, match=r"^line 4 of the program's metrics has the items of more than 2 scores$"):
        list(Reports(file).rows())
