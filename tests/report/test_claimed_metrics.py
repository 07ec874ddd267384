"""Claims on metrics of a task, margins and published scores in their units."""

from __future__ import annotations

from pathlib import Path

import pytest

from lrurun.config import planning
from lrurun.config.ladder import Claim, Ladder, load_ladder
from lrurun.data.metric import Exact, Metric
from lrurun.errors import UsageError
from lrurun.judging import design_record, questions, sequential
from lrurun.judging.claims import RungResults, Scored, take_look
from lrurun.judging.samples import Result, Scoring
from lrurun.judging.verdicts import Question
from tests.harness.reports import make_run, make_rung
from tests.harness.scored import LADDER, tasks  # noqa: F401
from tests.report.test_metrics import BITS, build


def test_a_claim_may_name_another_metric_of_the_task() -> None:
    exact = Exact(chance=0.25)
    runs = [
        make_run(
            f"{rung}{seed}",
            rung,
            seed,
            result={"test/bits_per_byte": bits + seed / 100, "test/exact": share + seed / 100},
        )
        for rung, bits, share in (("a", 2.5, 0.9), ("b", 2.0, 0.5))
        for seed in range(3)
    ]
    claims = [
        Claim(text="t", source="s", rung="b", than="a"),
        Claim(text="t", source="s", rung="b", than="a", metric="exact"),
        Claim(text="t", source="s", rung="a", kind="above-chance", margin=0.5, metric="exact"),
    ]
    found = build(BITS, runs, *claims, metrics=(BITS, exact), test_items=None).claims
    assert [one.verdict for one in found] == ["supported", "contradicted", "supported"]
    assert [one.metric for one in found] == ["", "exact", "exact"]
    assert found[0].detail.startswith("provisional (3 seeds); b 2.0100 ")
    assert found[1].detail.startswith("exact: provisional (3 seeds); b 51.00 ± 0.58 (n=3), a 91.00 ")
    assert "difference -40.00 points" in found[1].detail
    assert found[2].detail.startswith("exact: provisional (3 seeds); a 91.00 ± 0.58 (n=3), chance 25.00; ")
    # the baselines of the data are scores of the metric that selects the model
    measured = Exact(chance=0.25, naive="unigram model")
    of_bits = {"baselines": {"unigram model": 4.0}}
    found = build(BITS, runs, *claims, metrics=(BITS, measured), test_items=None, data=of_bits).claims
    assert found[2].detail.startswith("exact: provisional (3 seeds); a 91.00 ± 0.58 (n=3), chance 25.00; ")


def test_a_look_judges_a_claim_by_the_metric_that_it_names() -> None:
    claim = Claim(text="t", source="s", rung="b", than="a", metric="exact")
    ladder = Ladder(name="two", title="two", source="s", rungs=(make_rung("a"), make_rung("b")), claims=(claim,))

    def scored(metric: Metric, a: float, b: float) -> Scored:
        rungs = {
            rung: RungResults(rung=rung, results=tuple(Result(seed, mean + seed / 100) for seed in range(15)))
            for rung, mean in (("a", a), ("b", b))
        }
        return Scored(rungs=rungs, scoring=Scoring(metric=metric))

    bits, exact = scored(BITS, 3.0, 2.0), scored(Exact(), 0.9, 0.5)
    design = sequential.Design(
        max_seeds=20,
        looks=sequential.looks(20),
        settings={"a": "x", "b": "y"},
        questions=tuple(questions.asked(ladder, "sDigits")),
        finished_before=0,
    )
    look = take_look(
        sequential.DesignProgress(design=design),
        design.looks[0],
        bits.rungs,
        scoring=bits.scoring,
        design="d",
        runs=[],
        by_metric={"exact": exact},
    )
    assert [(one.metric, one.verdict, [side.n for side in one.sides]) for one in look.comparisons] == [
        ("", "supported", [12, 12]),
        ("exact", "contradicted", [12, 12]),
    ]
    [_, asked] = [sequential.question_of(one) for one in look.comparisons]
    assert asked == design.questions[1]


def test_designs_keep_the_digests_that_looks_refer_to() -> None:
    asked = (Question(kind="better", rung="b", other="a"), Question(kind="at-chance", rung="b", margin=0.25))
    design = sequential.Design(
        max_seeds=20, looks=sequential.looks(20), settings={"a": "x", "b": "y"}, questions=asked, finished_before=1
    )
    assert design_record.digest(design) == "bcf7db497c925116"


def claimed(tmp_path: Path, kind: str, *lines: str) -> None:
    claim = ["[[claim]]", 'text = "t"', 'source = "s"', 'rung = "many"', f'kind = "{kind}"', *lines]
    file = tmp_path / "ablations" / "sizes.toml"
    file.write_text("\n".join([LADDER, *claim]))


@pytest.mark.usefixtures("tasks")
def test_a_claim_on_a_metric_that_the_task_lacks_is_an_error_before_training(tmp_path: Path) -> None:
    claimed(tmp_path, "better", 'than = "few"', 'metric = "acuracy"')
    with pytest.raises(UsageError) as caught:
        planning.make("Letters", ladder="sizes")
    assert caught.value.message == "ablations/sizes.toml, claim 't', metric: Letters has no metric 'acuracy'"
    assert caught.value.hint == "did you mean 'accuracy'? metrics of Letters: bits_per_byte, accuracy"
    claimed(tmp_path, "better", 'than = "few"', 'metric = "accuracy"')
    planning.make("Letters", ladder="sizes")
    with pytest.raises(UsageError, match="claim 't', metric: Wave has no metric 'accuracy'"):
        planning.make("Wave", ladder="sizes")


@pytest.mark.usefixtures("tasks")
def test_a_claim_of_speed_has_no_metric(tmp_path: Path) -> None:
    claimed(tmp_path, "faster", 'than = "few"', 'metric = "accuracy"')
    with pytest.raises(UsageError, match="claim 't': kind = \"faster\" is about speed, not about a metric"):
        planning.make("Letters", ladder="sizes")


@pytest.mark.usefixtures("tasks")
def test_margins_of_shares_are_fractions_and_others_are_not_bounded(tmp_path: Path) -> None:
    claimed(tmp_path, "no-worse", 'than = "few"', "margin = 2.5")
    for task in ("Wave", "Letters"):
        assert planning.make(task, ladder="sizes").ladder.claims[0].margin == 2.5
    claimed(tmp_path, "no-worse", 'than = "few"', "margin = 2.5", 'metric = "accuracy"', 'tasks = ["Letters"]')
    with pytest.raises(UsageError) as caught:
        planning.make("Letters", ladder="sizes")
    assert caught.value.message == "ablations/sizes.toml, claim 't', margin: expected a number <= 1, found 2.5"
    assert caught.value.hint == "accuracy is a fraction here: 0.699 for 69.9 %"


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(
    ("task", "line", "wrong"),
    [
        ("Wave", "value = -0.5", None),
        ("Letters", "value = 12.5\nstderr = 1.5", None),
        ("sDigits", "value = 0.5\nstderr = 0.5", None),
        ("sDigits", "value = 69.9", "value: expected a number <= 1, found 69.9"),
        ("sDigits", "value = -0.5", "value: expected a number >= 0, found -0.5"),
        ("sDigits", "value = 0.5\nstderr = 1.5", "stderr: expected a number <= 1, found 1.5"),
        ("Shift", 'value = 0.5\nmetric = "r2_batch"', None),
        ("Shift", 'value = 0.5\nmetric = "r2_bath"', "metric: Shift has no metric 'r2_bath'"),
        (
            "Letters",
            'value = 0.5\nmetric = "accuracy"',
            "metric: accuracy has another scale than bits_per_byte, which selects the model",
        ),
    ],
)
def test_published_scores_are_in_the_units_of_the_metric(
    tmp_path: Path, task: str, line: str, wrong: str | None
) -> None:
    file = tmp_path / "ablations" / "sizes.toml"
    file.write_text(f'{LADDER}\n[[rung.published.{task}]]\nsource = "s"\n{line}\n')
    if wrong is None:
        load_ladder("sizes")
        return
    with pytest.raises(UsageError) as caught:
        load_ladder("sizes")
    assert caught.value.message == f"ablations/sizes.toml, rung[many].published.{task}[0].{wrong}"


@pytest.mark.usefixtures("tasks")
def test_published_scores_are_for_profiles_that_a_recipe_has(tmp_path: Path) -> None:
    file = tmp_path / "ablations" / "sizes.toml"
    row = f'{LADDER}\n[[rung.published.Shift]]\nsource = "s"\nvalue = 0.5\nprofile = '
    file.write_text(f'{row}"length-65536"\n')
    planning.make("Shift", ladder="sizes")
    file.write_text(f'{row}"length-65535"\n')
    with pytest.raises(UsageError) as caught:
        planning.make("Shift", ladder="sizes")
    assert caught.value.message.endswith("published.Shift[0].profile: unknown profile 'length-65535'")
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("did you mean 'length-65536'?")
