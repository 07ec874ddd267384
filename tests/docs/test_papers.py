"""The page of every table and figure of the papers: complete, with commands that exist, as in the documentation."""

from __future__ import annotations

import json
import shlex

import pytest
from msgspec import structs

from lrurun import data, paths, studies
from lrurun.config.ladder import Claim, load_ladder
from lrurun.config.recipe import load_recipe
from lrurun.report import papers
from lrurun.report.tables import ledger_claims
from lrurun.report.tables.ledger_claims import Evidence, LedgerClaim
from tests.docs import generated
from tests.harness.commands import answered, said

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


def test_the_kept_ledger_is_merged_and_judged(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "ledger", "merge", str(generated.KEPT))
    assert (code, err) == (0, "")
    assert "unfinished here and now finished: 0" in out
    places = answered(capsys, "claims", "--paper", "lru")["places"]
    assert papers.AT_SCALE in {place["status"] for place in places}


@pytest.mark.parametrize("paper", papers.every(), ids=lambda paper: paper.name)
def test_sentences_name_claims_studies_and_commands_that_there_are(paper: papers.Paper) -> None:
    texts = {claim.text for claim in claims_of(paper)}
    assert len(paper.sentence) > 10
    for sentence in paper.sentence:
        assert set(sentence.claims) <= texts, sentence.says
        assert set(sentence.studies) <= {f"study:{name}" for name in studies.names()}
        assert all(words[:1] == ["lrurun"] for words in map(shlex.split, sentence.commands))
        assert sentence.claims or sentence.studies or sentence.commands or sentence.note


@pytest.mark.parametrize("paper", papers.every(), ids=lambda paper: paper.name)
def test_a_sentence_about_a_figure_that_is_made_is_checked_too(paper: papers.Paper) -> None:
    made = {place.at for place in paper.place if place.studies or place.commands}
    for sentence in paper.sentence:
        if papers.places_in(sentence.at) & made:
            assert sentence.claims or sentence.studies or sentence.commands, sentence.says


@pytest.mark.parametrize("paper", papers.every(), ids=lambda paper: paper.name)
def test_every_claim_of_a_ladder_is_in_a_sentence(paper: papers.Paper) -> None:
    named = {text for sentence in paper.sentence for text in sentence.claims}
    assert {claim.text for claim in claims_of(paper)} - named == set()


def claims_of(paper: papers.Paper) -> list[Claim]:
    """The claims of ladders on a paper."""
    ladders = [load_ladder(name) for name in paths.names("ablations")]
    return [claim for ladder in ladders for claim in ladder.claims if claim.source.startswith(paper.name)]


SIZES = [(paper.name, size) for paper in papers.every() for size in paper.size]


@pytest.mark.parametrize(("paper", "size"), SIZES, ids=lambda value: getattr(value, "model", value))
def test_a_published_number_of_parameters_is_met_or_has_a_reason(paper: str, size: papers.Size) -> None:
    here = generated.parameters_of(size)
    is_met = here is not None and abs(here / size.published - 1) <= papers.TOLERANCE
    assert is_met == (not size.note)
    assert (here is None) == (not size.command)


def test_the_sizes_of_the_paper_on_speech_are_those_of_the_profile() -> None:
    """Biegun et al. 2024, Table 2; to a thousand parameters."""
    speech = {size.model: generated.parameters_of(size) for paper, size in SIZES if size.profile == "rotrnn-network"}
    assert speech == {"LRU, their reproduction": 283_523, "RotRNN": 284_675}


def test_the_status_says_whether_runs_judge_at_the_papers_scale(empty: tuple[Evidence, list[LedgerClaim]]) -> None:
    paper = papers.every()[0]
    text = "Dropping the nonlinearity of the recurrence improves accuracy"

    def status(**here: object) -> tuple[str, str]:
        claims = [
            structs.replace(one, here=structs.replace(one.here, **here)) if one.text == text else one
            for one in empty[1]
        ]
        found = {one.place + " " + one.what.split()[0]: one.status for one in papers.statuses(paper, empty[0], claims)}
        return found["Table 1 a"], found["section 3.1 Removing"]

    assert status() == (papers.CONFIGURED, papers.CONFIGURED)
    assert status(verdict="supported", stand_in=True) == (papers.REDUCED, papers.REDUCED)
    assert status(verdict="contradicted", stand_in=False) == (papers.AT_SCALE, papers.AT_SCALE)


def test_statuses_of_one_paper_are_shown_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "claims", "--paper", "dlr", "--json")
    assert code == 0
    places = json.loads(out)["places"]
    assert len(places) == 14 + len(papers.every()[1].sentence)
    [one] = [one for one in places if one["place"] == "Figure 4"]
    assert (one["status"], one["commands"]) == ("not possible", [])
    assert one["note"].startswith("code; here it is")
    _, out, _ = said(capsys, "claims", "--paper", "dlr")
    assert "tables, figures and sentences of Gupta et al. 2023" in out
    assert "tables, figures" not in said(capsys, "claims", "--paper", "dlr", "Shift")[1]


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
