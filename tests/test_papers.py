"""The page of every table and figure of the papers: complete, with commands that exist, as in the documentation."""

from __future__ import annotations

import shlex

import pytest
from msgspec import structs

from lrurun import data, paths, studies
from lrurun.config.ladder import load_ladder
from lrurun.config.recipe import load_recipe
from lrurun.report import papers
from lrurun.report.tables import ledger_claims
from lrurun.report.tables.ledger_claims import Evidence, LedgerClaim
from tests import generated
from tests.commands import said

NUMBERS = {
    "Orvieto et al. 2023": {"Table": 9, "Figure": 9},
    "Gupta et al. 2023": {"Table": 10, "Figure": 4},
    "Biegun et al. 2024": {"Table": 3, "Figure": 3},
    "Zucchet and Orvieto 2024": {"Table": 3, "Figure": 10},
}
"""How many tables and figures each paper has, with those of its appendices."""


@pytest.fixture(scope="module")
def empty() -> tuple[Evidence, list[LedgerClaim]]:
    """What there is without a ledger."""
    ladders = {name: load_ladder(name) for name in paths.names("ablations")}
    evidence = ledger_claims.gather(None, ladders, None, with_studies=True)
    return evidence, ledger_claims.collect(evidence, ladders, None, None).claims


def test_every_table_and_figure_has_a_place() -> None:
    assert [paper.name for paper in papers.every()] == list(NUMBERS)
    assert set(NUMBERS) == set(ledger_claims.PAPERS.values())
    for paper in papers.every():
        expected = [f"{kind} {k}" for kind, count in NUMBERS[paper.name].items() for k in range(1, count + 1)]
        assert sorted(place.at for place in paper.place) == sorted(expected)


def test_every_study_has_a_place() -> None:
    tasks = {task for paper in papers.every() for place in paper.place for task in place.studies}
    assert tasks == {f"study:{name}" for name in studies.names()}


@pytest.mark.parametrize("paper", papers.every(), ids=lambda paper: paper.name)
def test_commands_name_what_there_is(paper: papers.Paper) -> None:
    for place in paper.place:
        assert set(place.tasks) <= set(data.TASKS)
        assert set(place.same_as) <= {other.at for other in paper.place}
        assert place.studies or place.commands or place.prints or place.note
        assert all(words[:1] == ["lrurun"] for words in map(shlex.split, place.commands))
        for ladder, task, profile in place.trained:
            load_ladder(ladder)
            assert profile is None or profile in load_recipe(task).profile, (place.at, task)


def test_claims_are_shown_at_the_places_that_they_name(empty: tuple[Evidence, list[LedgerClaim]]) -> None:
    named = 0
    for claim in empty[1]:
        for paper in papers.every():
            if claim.source.startswith(paper.name) and papers.places_in(claim.source):
                named += 1
                assert papers.places_in(claim.source) <= {place.at for place in paper.place}, claim.source
                assert any(papers.is_about(paper, place, claim) for place in paper.place), claim.source
    assert named > 150


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("section 3.3, Tables 2, 7 and 8", {"Table 2", "Table 7", "Table 8"}),
        ("section 3.3, Tables 1 to 3; the margin is ours", {"Table 1", "Table 2", "Table 3"}),
        ("Table 1, on 4,096 numbers; 0.9 is ours", {"Table 1"}),
        ("appendix C.2, Table 5a", {"Table 5"}),
        ("section 4.3, Figs. 4C and 4D", {"Figure 4"}),
        ("Fig. 10, appendix B.4, Figure 9", {"Figure 9", "Figure 10"}),
        ("equation (37), Prop. 3", set()),
    ],
)
def test_places_in_sources(source: str, places: set[str]) -> None:
    assert papers.places_in(source) == places


def test_the_recorded_page_is_the_current_one_but_for_its_results(empty: tuple[Evidence, list[LedgerClaim]]) -> None:
    def places(page: str) -> list[list[str]]:
        rows = [line.strip("| ").split(" | ") for line in page.splitlines()]
        return [[*row[:3], *row[4:]] for row in rows if row[0].startswith(("### ", "Table ", "Figure "))]

    recorded, current = (places(text) for text in (generated.PAPERS.read_text(), papers.render(*empty)))
    assert len(current) > sum(sum(numbers.values()) for numbers in NUMBERS.values())
    assert [row for row in recorded if row != ["### Scores of the runs"]] == current


def test_the_page_of_one_paper(empty: tuple[Evidence, list[LedgerClaim]]) -> None:
    page = papers.render(*empty, only="Biegun et al. 2024")
    assert page.startswith("### Biegun et al. 2024: RotRNN")
    assert page.count("###") == 1


def test_the_page_is_of_all_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (("Copy",), ("--ladder", "lru")):
        code, _, err = said(capsys, "claims", "--page", "p.md", *option)
        assert code == 2
        assert err.startswith(f"error: --page: shows all ladders and tasks, found {' '.join(option)}\nhint: ")


def test_a_claim_that_is_not_judged_on_a_stand_in_is_not_shown(empty: tuple[Evidence, list[LedgerClaim]]) -> None:
    """As that on very long sequences, on the short ones of npDigits."""
    paper = papers.every()[0]
    place = next(place for place in paper.place if place.at == "Figure 5")
    claim = next(one for one in empty[1] if one.text == "Small initial phases are needed on very long sequences")
    shown = [
        papers.is_about(
            paper, place, structs.replace(claim, task="npDigits", here=structs.replace(claim.here, verdict=verdict))
        )
        for verdict in ("contradicted", "not judged", "not run")
    ]
    assert shown == [True, False, False]
