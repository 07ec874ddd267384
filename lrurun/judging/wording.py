"""How scores, differences with their intervals, p-values and comparisons are worded, in tables and in sentences.

The numbers of a metric have the form that `scores.ScoreForm` gives them.
"""

from __future__ import annotations

from lrurun.data.metric import Metric
from lrurun.judging.samples import Scoring
from lrurun.judging.scores import ScoreForm, form_of
from lrurun.judging.statistics import ALPHA
from lrurun.judging.verdicts import NOT_RUN, OPEN, Comparison, Side

SURE = 0.1
"""Mean and chance of improvement disagree where their directions differ and the chance is this far from 1/2 [ours]."""


# Numbers


def form_beside(form: ScoreForm, comparison: Comparison) -> ScoreForm:
    """The form of the errors and differences of a comparison."""
    return form.beside(side.mean for side in comparison.sides)


def with_error(score: float, stderr: float | None, form: ScoreForm, *, short: bool = False) -> str:
    """A score with its standard error, where that is known, as in "92.67 ± 0.19"."""
    number, size = (form.short, form.short_size) if short else (form.full, form.size)
    return number(score) + ("" if stderr is None else f" ± {size(stderr)}")


def difference(comparison: Comparison, form: ScoreForm, *, short: bool = False) -> str:
    """The difference of a comparison, as in "+2.13"; empty where it has none."""
    if comparison.difference is None:
        return ""
    form = form_beside(form, comparison)
    return (form.short_difference if short else form.difference)(comparison.difference)


def size_of_difference(comparison: Comparison, form: ScoreForm) -> str:
    """The difference without its sign, with its unit, as in "2.13 points"."""
    return f"{form_beside(form, comparison).size(abs(comparison.difference or 0.0))} {form.unit}"


def interval(comparison: Comparison, form: ScoreForm, *, short: bool = False) -> str:
    """The interval of the difference, as in "[+1.32, +2.94]"; empty where it has none."""
    ends = _ends(comparison, form, short=short)
    return f"[{', '.join(ends)}]" if ends else ""


def between(comparison: Comparison, form: ScoreForm) -> str:
    """The interval of the difference in a sentence, as in "between -0.80 and +1.90 points"; empty where it has none."""
    ends = _ends(comparison, form)
    return f"between {' and '.join(ends)} {form.unit}" if ends else ""


def difference_with_interval(
    comparison: Comparison, form: ScoreForm, *, short: bool = False, with_unit: bool = False
) -> str:
    """The difference, its unit and its interval, as in "+2.13 points [+1.32, +2.94]"."""
    parts = [
        difference(comparison, form, short=short),
        form.unit if with_unit else "",
        interval(comparison, form, short=short) if comparison.difference is not None else "",
    ]
    return " ".join(filter(None, parts))


def _ends(comparison: Comparison, form: ScoreForm, *, short: bool = False) -> list[str]:
    if comparison.low is None or comparison.high is None:
        return []
    form = form_beside(form, comparison)
    return [(form.short_difference if short else form.difference)(end) for end in (comparison.low, comparison.high)]


def p_value(p: float) -> str:
    """An adjusted p in a sentence, as in "p = 0.012"."""
    return f"p {p_number(p)}" if p < 0.001 else f"p = {p_number(p)}"


def p_number(p: float) -> str:
    """An adjusted p in a column, as in "0.012" and "< 0.001"."""
    return "< 0.001" if p < 0.001 else beside_level(p, "{:.3f}", "{:.4f}", "{:.5f}", "{:.6f}")


def beside_level(p: float, *forms: str) -> str:
    """A p in the first of some forms, from the shortest on, that does not round it to the level at which tests decide.

    A p of 0.0497 that is printed as 0.050 would contradict its own verdict.
    """
    texts = [form.format(p) for form in forms]
    return next((text for text in texts if float(text) != ALPHA), texts[0])


def improvement(comparison: Comparison) -> str:
    """The chance of improvement with its interval, as in "97 % [81, 100]"; empty where it is not known."""
    if comparison.improvement is None:
        return ""
    text = f"{100 * comparison.improvement:.0f} %"
    if comparison.improvement_low is None or comparison.improvement_high is None:
        return text
    return f"{text} [{100 * comparison.improvement_low:.0f}, {100 * comparison.improvement_high:.0f}]"


def look(comparison: Comparison | None) -> str:
    """The look that the numbers are from, as in " at 12 seeds": the mean of a rung may be of more seeds."""
    return "" if comparison is None or comparison.look is None else f" at {comparison.look} seeds"


# What changes the reading of a verdict


def on_these_items(verdict: str) -> str:
    """The verdict on these test items in words, where there is one."""
    return verdict and f"on these items: {verdict}"


def remarks(comparison: Comparison, form: ScoreForm) -> list[str]:
    """Remarks that change the reading of a verdict: few seeds, seeds that fail, a mean that points the other way."""
    phrases = [failures(comparison), opposite_mean(comparison, form)]
    if comparison.provisional and comparison.is_tested:
        phrases.insert(0, f"provisional ({comparison.least_seeds} seeds)")
    return [text for text in phrases if text]


def failures(comparison: Comparison) -> str:
    """How many seeds learn where any does not, as in "linear-rnn learns in 2 of 12 seeds"; else nothing."""
    failing = [side for side in comparison.sides if side.failures and side.learning is not None]
    if failing and all(side.learning == 0 for side in comparison.sides if side.rung is not None):
        return "neither learns" if len(failing) > 1 else f"{failing[0].rung} does not learn"
    return ", ".join(f"{side.rung} learns in {side.learning} of {side.n} seeds" for side in failing)


def opposite_mean(comparison: Comparison, form: ScoreForm) -> str:
    """That the mean and the typical run disagree in direction, where they do; else nothing."""
    if comparison.improvement is None or comparison.difference is None or form.higher_is_better is None:
        return ""
    gain = comparison.difference if form.higher_is_better else -comparison.difference
    sure = comparison.improvement - 0.5
    if gain * sure >= 0 or abs(sure) < SURE:
        return ""
    run, mean = ("better", "worse") if sure > 0 else ("worse", "better")
    pairs = f"in {100 * (0.5 + abs(sure)):.0f} % of pairs"
    return f"a run of {comparison.rung} is {run} than one of {comparison.other} {pairs}, though the mean is {mean}"


# Comparisons


def statement(comparison: Comparison, form: ScoreForm) -> str:
    """What a claim states, as in "lru within 0.5 points of s5"."""
    margin = "" if comparison.margin is None else f"{form.short(comparison.margin)} {form.unit}"
    relation = {
        "better": f"better than {comparison.other}",
        "faster": f"faster than {comparison.other}",
        "as-fast": f"at most {100 * (comparison.margin or 0):.0f} % slower than {comparison.other}",
        "no-worse": f"at most {margin} worse than {comparison.other}",
        "equal": f"within {margin} of {comparison.other}",
        "at-chance": f"within {margin} of chance",
        "above-chance": f"{f'more than {margin} ' if comparison.margin else ''}above chance",
    }[comparison.kind]
    return f"{comparison.rung} {relation}"


def describe(comparison: Comparison, scoring: Scoring, difference_p: float | None = None) -> list[str]:
    """A comparison in phrases; `difference_p` is the p of the difference beside a claim with a margin."""
    is_without_runs = comparison.verdict in OPEN and not any(side.n for side in comparison.sides)
    if comparison.verdict == NOT_RUN or comparison.same_runs or is_without_runs:
        return [comparison.reason]
    form = form_beside(form_of(scoring.metric), comparison)
    phrases = [*remarks(comparison, form), _sides(comparison, scoring, form)]
    if comparison.difference is not None:
        phrases.append(f"difference {difference_with_interval(comparison, form, with_unit=True)}")
    if comparison.improvement is not None and not comparison.margin:  # a margin shifts what is tested
        phrases.append(f"chance of improvement {improvement(comparison)}")
    if comparison.p_adjusted is not None:
        margin = f"margin {form.full(comparison.margin)}, " if comparison.margin else ""
        phrases.append(margin + p_value(comparison.p_adjusted))
        if comparison.verdict_on_these_items and comparison.p_on_these_items is not None:
            phrases.append(f"on these items {p_value(comparison.p_on_these_items)}")
        if comparison.item_share is not None:
            phrases.append(f"test items are {100 * comparison.item_share:.0f} % of the variance")
    elif comparison.reason:
        phrases.append(comparison.reason)
    if difference_p is not None:
        phrases.append(of_difference(difference_p))
    return phrases


def of_difference(p: float) -> str:
    """The p of the difference beside a claim with a margin."""
    return f"test of the difference: {p_value(p)}"


def in_short(comparison: Comparison, metric: Metric) -> str:
    """A comparison of published numbers, as in "undecided, -1.1 [-4.0, +1.8], p = 0.21"."""
    if comparison.difference is None:
        return f"{comparison.verdict}: {comparison.reason}"
    text = f"{comparison.verdict}, {difference_with_interval(comparison, form_of(metric), short=True)}"
    return text + (
        f", {p_value(comparison.p_adjusted)}" if comparison.p_adjusted is not None else f": {comparison.reason}"
    )


def _sides(comparison: Comparison, scoring: Scoring, form: ScoreForm) -> str:
    mine, other = comparison.sides
    if other.rung is None:
        return f"{_side(mine, scoring, form)}, chance {_score(scoring.chance, None, form)}"
    return f"{_side(mine, scoring, form)}, {_side(other, scoring, form)}"


def _side(side: Side, scoring: Scoring, form: ScoreForm) -> str:
    lost = f", {side.diverged} diverged" if side.diverged else ""
    lost += f", {side.unscored} without a usable score" if side.unscored else ""
    if lost and scoring.chance is not None:
        lost += f", counted as chance, {_score(scoring.chance, None, form)}"
    return f"{side.rung} {_score(side.mean, side.stderr, form)} (n={side.n}{lost})"


def _score(score: float | None, stderr: float | None, form: ScoreForm) -> str:
    return "no score" if score is None else with_error(score, stderr, form)
