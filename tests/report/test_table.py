"""Tables on terminals and in pipes: what narrows, what is left out, what is cut, and in which order."""

from __future__ import annotations

import pytest

from lrurun import console, table
from lrurun.table import Column, Table

WORDS = " ".join(f"word-{k}" for k in range(30))
LONG = "a-rung-whose-name-is-longer-than-forty-characters"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Prints a table on a terminal of a width; its lines."""

    def printed(shown: Table, width: int) -> list[str]:
        monkeypatch.setattr(console, "is_screen", lambda: True)
        monkeypatch.setattr(console, "width", lambda: width)
        table.show(shown)
        *lines, last = capsys.readouterr().out.splitlines()
        assert last == "", "what follows is apart from it"
        assert all(len(line) <= width for line in lines)
        return lines

    return printed


def test_a_pipe_gets_whole_rows(capsys: pytest.CaptureFixture[str]) -> None:
    table.show_text(["id", "text", "n"], [["0123", WORDS, "5"], ["4567", "x", "10"]], title="runs", cut={"text": 10})
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "runs",
        f"id    {'text'.ljust(len(WORDS))}   n",
        f"0123  {WORDS}   5",
        f"4567  {'x'.ljust(len(WORDS))}  10",
    ]


def test_text_from_a_ledger_is_data(screen) -> None:
    lines = screen(table.of_text(["name"], [["two\nlines \x1b[31mred \u202e[bold]"]]), 60)
    assert lines[2] == "two lines red [bold]"


def test_sentences_are_cut_first_and_then_columns_go_by_priority_and_names_are_cut_at_last(screen) -> None:
    rows = [["0123456789ab", LONG, "150", WORDS]]
    shown = table.of_text(["id", "rung", "step", "note"], rows, order=["note", "step"], cut={"note": 20})
    heads = {100: "id rung step note", 75: "id rung step", 64: "id rung", 40: "id rung"}
    for width, names in heads.items():
        lines = screen(shown, width)
        assert lines[0].split() == names.split()
        gone = [name for name in ("step", "note") if name not in names]
        note = f"Not shown at this width: {', '.join(gone)}."
        assert lines[3:] == ([note] if gone else [])
        assert lines[2].startswith("0123456789ab  ")
        assert (LONG in lines[2]) == (width > 60)
        assert ("word-0" in lines[2]) == (width == 100)
    assert lines[2] == "0123456789ab  a-rung-whose...-characters"
    assert list(shown.stacked(24))[:4] == ["0123456789ab", "  rung:", f"  {LONG}", "  step: 150"]
    assert shown.fit(24) is None


def test_a_name_that_is_broken_after_a_hyphen_is_whole_in_a_line() -> None:
    names = ("id", "small-\nphase", "Copy\nmap")
    columns = [table.Column(name=name, cell=lambda row, k=k: row[k]) for k, name in enumerate(names)]
    assert list(table.Table(columns=tuple(columns), rows=(("a", "1", "2"),)).stacked(24)) == [
        "a",
        "  small-phase: 1",
        "  Copy, map: 2",
    ]


def test_the_whole_text_of_a_cut_cell_is_below_the_table(screen) -> None:
    rows = [["one", WORDS], ["two", "short"], ["three", WORDS]]
    shown = table.of_text(
        ["name", "text"], rows, cut={"text": 20}, below={"text": lambda row: "" if row[0] == "three" else row[0]}
    )
    lines = screen(shown, 40)
    assert [line.split()[0] for line in lines[2:5]] == ["one", "two", "three"]
    assert lines[2].endswith("...")
    assert " ".join(line.strip() for line in lines[5:]) == f"one: {WORDS}"
    assert len(screen(shown, 300)) == 5, "nothing was cut"


def test_numbers_are_never_cut_and_their_headings_are_at_last(screen) -> None:
    shown = table.of_text(["id", "model.recurrence.max_phase"], [["0123456789ab", "6.283185307179586"]])
    lines = screen(shown, 34)
    assert lines[0].split() == ["id", "model.rec...ax_phase"]
    assert lines[2].split() == ["0123456789ab", "6.283185307179586"]


def test_a_narrower_form_comes_before_a_cut(screen) -> None:
    short = Column(name="range", cell=lambda row: "1 to 9", right=False)
    whole = Column(name="values", cell=lambda row: "1 2 3 4 5 6 7 8 9", right=False, priority=1, narrower=short)
    shown = Table(columns=(Column(name="rung", cell=lambda row: LONG, right=False), whole), rows=(None,))
    lines = screen(shown, 60)
    assert lines[2:] == [f"{LONG}  1 to 9", "Not shown at this width: values."]


def test_wide_characters_take_two_columns() -> None:
    assert table.shortened("漢字漢字漢字漢字漢字", 11) == "漢字...漢字"
    shown = table.of_text(["a", "b"], [["漢字", "x"], ["abcdef", "y"]])
    assert list(shown.lines()) == ["a       b", "──────  ─", "漢字    x", "abcdef  y"]


@pytest.mark.parametrize(("width", "indent"), [(60, 28), (50, 4)])
def test_facts_have_lines_that_end_between_words_beside_their_names(width: int, indent: int) -> None:
    path = "/a-folder" * 12
    names = {"by the paper's own numbers": WORDS, "file": path}
    *lines, last = table.facts(list(names.items()), width)
    assert last.endswith(f" {path}"), "can be copied whole"
    words = [line for line in lines if "word-" in line]
    assert max(map(len, words)) <= width
    assert all(line.startswith(" " * indent + "word-") for line in words[1:])
    assert " ".join(line.strip() for line in words).endswith(WORDS)
    assert list(table.facts([("name", WORDS)], None)) == [f"name  {WORDS}"]
