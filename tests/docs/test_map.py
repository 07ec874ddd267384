"""The page of the map has the numbers of the kept results."""

from __future__ import annotations

import pytest

from tests.docs import generated, kept, task_map

pytestmark = pytest.mark.slow  # thousands of runs are merged and compared


def test_the_page_has_the_kept_results() -> None:
    page = task_map.DOCS / "map.md"
    assert page.read_text() == generated.page(page), "run: python -m tests.docs.generated --write"


def test_pictures_show_the_kept_results() -> None:
    shown = task_map.shown()
    for path, made in shown["pictures"].items():
        picture = path.read_text()
        assert task_map.texts(picture) == task_map.texts(made), (
            f"{path.name}: run: python -m tests.docs.generated --write"
        )
        assert task_map.lines(picture) == pytest.approx(task_map.lines(made), abs=1.0), path.name
    for name, ladder in (("map.svg", "lru"), ("map-selective.svg", "selective")):
        texts = task_map.texts((task_map.PICTURES / name).read_text())
        columns = len(shown[ladder]["columns"]) + 1  # the last one counts
        assert sum(text.removeprefix("(")[:1] in "▲▼·" for text in texts) == (len(shown[ladder]["rows"]) - 1) * columns


def test_the_commands_of_the_page_have_nothing_left_to_train() -> None:
    """The kept runs have the fingerprints, seeds and chosen rates that recipes and ladders give today."""
    commands = task_map.commands()
    assert len(commands) == 15 + 6 + 15 + 4
    with kept.merged("map") as machine:
        for command in commands:
            made = machine.json("plan", *command)
            rungs = [rung for plan in made.get("plans", [made]) for rung in plan["rungs"]]
            assert [rung["rung"] for rung in rungs if rung["runs_left"] or not rung["runs_done"]] == [], command
