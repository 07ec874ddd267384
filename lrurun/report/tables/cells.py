"""The text of cells that several reports share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lrurun.config.ladder import Published
from lrurun.judging import wording
from lrurun.judging.scores import ScoreForm
from lrurun.judging.verdicts import NOT_RUN
from lrurun.report.tables import content
from lrurun.report.tables.content import mixed_versions
from lrurun.report.tables.row_scores import LadderRow
from lrurun.table import NOTHING

RATES = {
    "tuned": "tuned on validation",
    "published": "published",
    "chosen": "chosen for each rung",
    "set": "given by --set",
    "default": "untuned (the recipe's default)",
    "elsewhere": "as they were elsewhere, tuned or not",
}
"""Kind of a source of learning rates -> in a sentence."""


def score(row: LadderRow, form: ScoreForm) -> str:
    """The mean with its error."""
    return f"{_mean(row.mean, row.stderr, form)} (n={row.n})"


def further_score(row: LadderRow, test: str, form: ScoreForm) -> str:
    """The mean on a further test; the number of seeds where it is not the row's."""
    for score in row.further_tests:
        if score.test == test:
            return _mean(score.mean, score.stderr, form) + (f" (n={score.n})" if score.n != row.n else "")
    return NOTHING


def verdict(row: LadderRow) -> str:
    """The verdict on the change; beside it that on these test items, where it is another one."""
    return f"{row.verdict} (on these items: {row.on_these_items})" if row.on_these_items else row.verdict


def change(row: LadderRow, form: ScoreForm) -> list[str]:
    """What the change to the base did: verdict and difference, its interval, p. Nothing without a base or runs."""
    comparison = row.comparison
    if comparison is None or row.verdict == NOT_RUN:
        return []
    if comparison.difference is None or row.same_as_before:
        return [row.verdict]
    lines = [f"{row.verdict} {wording.difference(comparison, form)}{wording.look(comparison)}"]
    if row.on_these_items:
        lines.append(f"on these items: {row.on_these_items}")
    if interval := wording.interval(comparison, form):
        lines.append(interval)
    return lines if comparison.p_adjusted is None else [*lines, wording.p_value(comparison.p_adjusted)]


def further_scores(row: LadderRow, form: ScoreForm) -> list[str]:
    """The means on all further tests."""
    return [f"at {score.test}: {further_score(row, score.test, form)}" for score in row.further_tests]


def _mean(mean: float | None, stderr: float | None, form: ScoreForm) -> str:
    return NOTHING if mean is None else wording.with_error(mean, stderr, form.beside([mean]))


def uncounted(row: LadderRow) -> list[str]:
    """How many runs the mean is not over, and why."""
    counts = {
        "diverged": row.diverged,
        "without a usable score": row.unscored,
        "with an infinite score": row.infinite,
        **({} if row.missing else {"failed": row.failed, "unfinished": row.unfinished}),
        f"of {row.asked} missing": row.missing,
        "left out": row.left_out,
    }
    return [f"{count} {state}" for state, count in counts.items() if count]


def remarks(row: LadderRow) -> list[str]:
    """Remarks that qualify a score."""
    return uncounted(row) + mixed_versions(row)


def in_grid(form: ScoreForm, *, changes: bool = False) -> Callable[[LadderRow], str]:
    """Makes the text of a cell of a table that has a rung in every cell, with what its change did if `changes`."""

    def text(row: LadderRow) -> str:
        values = [f"({published(row, form)})"] if row.published else []
        changed = change(row, form) if changes else []
        return "\n".join([score(row, form), *changed, *further_scores(row, form), *remarks(row), *values])

    return text


def scale(profile: str | None, rows: Iterable[LadderRow]) -> str:
    """`content.scale` for the published scores of these rows, unless they are for this profile."""
    return content.scale(None if any(score.profile for row in rows for score in row.published) else profile)


def other_metric(score: Published, form: ScoreForm) -> str:
    """The metric of a published score, after it, where it is not the table's."""
    return "" if score.metric in ("", form.name) else f" {score.metric.replace('_', ' ')}"


def published(row: LadderRow, form: ScoreForm) -> str:
    """The published scores, with one or two decimals in per cent, as published; with their metric if it is another."""

    def text(score: Published) -> str:
        if score.value is None:
            return "chance"
        error = "" if score.stderr is None else f" ± {form.published(score.stderr)}"
        return form.published(score.value) + error + other_metric(score, form)

    texts = [text(score) for score in row.published]
    return " / ".join(texts) or NOTHING
