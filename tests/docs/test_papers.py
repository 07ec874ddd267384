"""The page of every table, figure and checkable sentence of the papers: complete, and of what there is."""

from __future__ import annotations

import shlex

import pytest
from msgspec import structs

from lrurun import paths, studies
from lrurun.config.ladder import load_ladder
from lrurun.config.recipe import load_recipe
from lrurun.data import tasks
from lrurun.judging.judged_claim import JudgedClaim
from lrurun.ledger.ledger import Ledger
from lrurun.report import papers
from lrurun.report.tables import claims_table, ledger_claims
from lrurun.report.tables.ledger_claims import Evidence
from lrurun.studies.machinery import study_claims
from tests.docs import generated, kept
from tests.harness.machine import Machine

NUMBERS = {
    "Orvieto et al. 2023": {"Table": 9, "Figure": 9},
    "Gupta et al. 2023": {"Table": 10, "Figure": 4},
    "Biegun et al. 2024": {"Table": 3, "Figure": 3},
    "Zucchet and Orvieto 2024": {"Table": 3, "Figure": 10},
}
"""How many tables and figures each paper has, with those of its appendices."""
of_each_paper = pytest.mark.parametrize("paper", papers.every(), ids=lambda paper: paper.name.split()[0])


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Evidence, list[JudgedClaim]]:
    """What there is without a ledger."""
    ladders = {name: load_ladder(name) for name in paths.names("ablations")}
    with Ledger.read(tmp_path_factory.mktemp("none") / "ledger.db") as ledger:
        evidence = ledger_claims.gather(ledger, ladders, None, study_claims.evidence(ledger, None))
    return evidence, ledger_claims.collect(evidence, ladders, None, None).claims


def seen(claims: list[JudgedClaim], text: str, **here: object) -> list[JudgedClaim]:
    """The claims, with another verdict on those that begin with this text."""
    return [
        structs.replace(one, here=structs.replace(one.here, **here)) if one.text.startswith(text) else one
        for one in claims
    ]


def test_every_table_figure_and_study_has_a_place() -> None:
    assert [paper.name for paper in papers.every()] == list(NUMBERS)
    assert set(NUMBERS) == set(claims_table.PAPERS.values())
    for paper in papers.every():
        expected = [f"{kind} {k}" for kind, count in NUMBERS[paper.name].items() for k in range(1, count + 1)]
        assert sorted(exhibit.at for exhibit in paper.exhibit) == sorted(expected)
    tasks = {task for paper in papers.every() for exhibit in paper.exhibit for task in exhibit.studies}
    assert tasks == {f"study:{name}" for name in studies.names()}


@of_each_paper
def test_places_name_what_there_is(paper: papers.Paper) -> None:
    for exhibit in paper.exhibit:
        assert set(exhibit.tasks) <= set(tasks.TASKS)
        assert set(exhibit.same_as) <= {other.at for other in paper.exhibit}
        assert exhibit.studies or exhibit.commands or exhibit.prints or exhibit.note
        assert all(words[:1] == ["lrurun"] for words in map(shlex.split, exhibit.commands))
        for ladder, task, profile in exhibit.trained:
            load_ladder(ladder)
            assert profile is None or profile in load_recipe(task).profile, (exhibit.at, task)


@of_each_paper
def test_sentences_name_what_there_is_and_all_claims_of_ladders(paper: papers.Paper) -> None:
    ladders = [load_ladder(name) for name in paths.names("ablations")]
    texts = {claim.text for ladder in ladders for claim in ladder.claims if claim.source.startswith(paper.name)}
    assert {text for sentence in paper.sentence for text in sentence.claims} == texts
    made = {exhibit.at for exhibit in paper.exhibit if exhibit.studies or exhibit.commands}
    assert len(paper.sentence) > 10
    for sentence in paper.sentence:
        assert set(sentence.studies) <= {f"study:{name}" for name in studies.names()}
        assert all(words[:1] == ["lrurun"] for words in map(shlex.split, sentence.commands))
        is_checked = sentence.claims or sentence.studies or sentence.commands
        assert is_checked or (sentence.note and not papers.exhibits_in(sentence.at) & made), sentence.says


def test_claims_are_shown_at_the_places_that_they_name(empty: tuple[Evidence, list[JudgedClaim]]) -> None:
    named = 0
    for claim in empty[1]:
        for paper in papers.every():
            if claim.source.startswith(paper.name) and papers.exhibits_in(claim.source):
                named += 1
                assert papers.exhibits_in(claim.source) <= {exhibit.at for exhibit in paper.exhibit}, claim.source
                assert any(papers.is_about(paper, exhibit, claim) for exhibit in paper.exhibit), claim.source
    assert named > 150


@pytest.mark.parametrize(
    ("source", "exhibits"),
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
def test_exhibits_in_sources(source: str, exhibits: set[str]) -> None:
    assert papers.exhibits_in(source) == exhibits


def test_a_published_number_of_parameters_is_met_or_has_a_reason() -> None:
    sizes = [size for paper in papers.every() for size in paper.size]
    for size in sizes:
        here = generated.parameters_of(size)
        assert (here is None) == (not size.command)
        assert (here is not None and abs(here / size.published - 1) <= papers.TOLERANCE) == (not size.note), size
    # Biegun et al. 2024, Table 2; to a thousand parameters
    speech = {size.model: generated.parameters_of(size) for size in sizes if size.profile == "rotrnn-network"}
    assert speech == {"LRU, their reproduction": 283_523, "RotRNN": 284_675}
    assert generated.parameters() in (generated.ROOT / "docs" / "papers.md").read_text(), "run: tests.docs.generated"


def test_the_status_says_whether_runs_judge_at_the_papers_scale(empty: tuple[Evidence, list[JudgedClaim]]) -> None:
    paper = papers.every()[0]

    def status(**here: object) -> tuple[str, str]:
        claims = seen(empty[1], "Dropping the nonlinearity of the recurrence improves accuracy", **here)
        found = {one.place + " " + one.what.split()[0]: one.status for one in papers.statuses(paper, empty[0], claims)}
        return found["Table 1 a"], found["section 3.1 Removing"]

    assert status() == (papers.CONFIGURED, papers.CONFIGURED)
    assert status(verdict="supported", stand_in=True) == (papers.REDUCED, papers.REDUCED)
    assert status(verdict="contradicted", stand_in=False) == (papers.AT_SCALE, papers.AT_SCALE)


def test_a_claim_that_is_not_judged_on_a_stand_in_is_not_shown(empty: tuple[Evidence, list[JudgedClaim]]) -> None:
    """As that on very long sequences, on the short ones of npDigits."""
    paper = papers.every()[0]
    exhibit = next(exhibit for exhibit in paper.exhibit if exhibit.at == "Figure 5")
    claim = next(one for one in empty[1] if one.text == "Small initial phases are needed on very long sequences")
    shown = [
        papers.is_about(paper, exhibit, structs.replace(one, task="npDigits"))
        for verdict in ("contradicted", "not judged", "not run")
        for one in seen([claim], claim.text, verdict=verdict)
    ]
    assert shown == [True, False, False]


def test_the_page_of_one_paper(empty: tuple[Evidence, list[JudgedClaim]]) -> None:
    page = papers.render(*empty, only="Biegun et al. 2024")
    assert page.startswith("### Biegun et al. 2024: RotRNN")
    assert page.count("###") == 1


def test_statuses_of_one_paper(machine: Machine) -> None:
    places = machine.json("claims", "--paper", "dlr")["places"]
    assert len(places) == 14 + len(papers.every()[1].sentence)
    [one] = [one for one in places if one["place"] == "Figure 4"]
    assert (one["status"], one["commands"]) == ("not possible", [])
    assert one["note"].startswith("code; here it is")
    shown = machine.run("claims", "--paper", "dlr").stdout
    assert "tables, figures and sentences of Gupta et al. 2023" in shown
    assert "tables, figures" not in machine.run("claims", "--paper", "dlr", "Shift").stdout
    for option in (("Copy",), ("--ladder", "lru")):
        refused = machine.refused("claims", "--page", "p.md", *option)
        assert refused.startswith(f"error: --page: shows all ladders and tasks, found {' '.join(option)}\nhint: ")


def test_the_page_in_the_documentation_has_the_kept_results() -> None:
    """The numbers of all studies, as a ledger has them, pass their checks and judge claims as before."""
    page = generated.page_of_papers()
    assert page in (generated.ROOT / "docs" / "papers.md").read_text(), "run: python -m tests.docs.generated --write"
    assert papers.AT_SCALE in page


@pytest.mark.slow
def test_all_kept_results_are_merged(machine: Machine) -> None:
    for shard in kept.shards():
        merged = machine.run("ledger", "merge", str(shard))
        assert all(line.endswith("%") for line in merged.stderr.splitlines())  # progress, where it takes long
        assert "unfinished here and now finished: 0" in merged.stdout
    assert machine.json("report", "study:disk")["unfinished"] == 0
