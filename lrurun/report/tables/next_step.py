"""The line "Next:" of a report on a ladder, and the other commands below its answer."""

from __future__ import annotations

import shlex
from typing import Literal

from msgspec import structs

from lrurun import paths, plugins
from lrurun.console import clean
from lrurun.instances.requests import LadderRequest
from lrurun.judging import verdicts
from lrurun.judging.sequential import MAX_SEEDS
from lrurun.report.tables.chosen_table import ChosenReport
from lrurun.report.tables.ladder_table import LadderReport

LARGE_ITEM_SHARE = 0.5
"""From this share of test items in the variance on, more seeds help less than more test items [ours]."""


def longer(report: LadderReport) -> str:
    """The value of `--set` for twice the steps of the rungs that are still improving; empty without one."""
    steps = max((2 * row.steps for row in report.rows if row.still_improving and row.steps), default=None)
    return "" if steps is None or report.steps_path is None else f"{report.steps_path}={steps}"


def proposal(report: LadderReport) -> Literal["", "firm", "look", "repetition"]:
    """The next step: seeds that make verdicts firm, the next look of the design, or a repetition with fresh seeds.

    Seeds are never added because of a result: only a design that provides for it adds them.
    """
    if report.instance.profile == "smoke" or isinstance(report, ChosenReport):
        return ""
    undecided = any(row.verdict == verdicts.UNDECIDED and row.comparison for row in report.rows)
    seeds = max((row.ranked for row in report.rows), default=0)
    if report.design is None and seeds < verdicts.LEAST_SEEDS:
        return "firm" if undecided or any(row.verdict in ("helps", "hurts") for row in report.rows) else ""
    if not undecided:
        return ""
    if report.design is not None and report.design.next_look is not None:
        return "look"
    open_ = [row.comparison for row in report.rows if row.verdict == verdicts.UNDECIDED and row.comparison]
    if not longer(report) and all((each.item_share or 0.0) >= LARGE_ITEM_SHARE for each in open_):
        return ""  # more seeds would help little
    is_repeated = report.fresh_seeds is not None or report.kind == "imported"  # whose seeds may have any numbers
    return "repetition" if is_repeated else ""


def sentence(report: LadderReport, request: LadderRequest | str | None, firm: str) -> str:
    """The command of the next step, and its purpose."""
    if isinstance(report, ChosenReport):
        needed = f"needs {verdicts.LEAST_SEEDS} seeds that the choice did not use"
        return "\n".join(f"Next: {command} ({needed})" for command in report.commands)
    step = proposal(report)
    if step and report.kind == "imported":
        return _of_imported(report, step)
    if isinstance(request, str) or not step:
        return ""
    if step == "firm":
        firmer = firm or _request(report, request).with_seeds(str(verdicts.LEAST_SEEDS))
        return f"Next: {firmer} makes verdicts firm, which takes {verdicts.LEAST_SEEDS} seeds whatever these say."
    if step == "look":
        return f"Next: {command(report, request, 'ladder', '--decide')} takes the next look."
    steps = longer(report)
    again = _request(report, request).repeated(report.fresh_seeds or "", steps)
    runs = MAX_SEEDS * sum(not row.same_as_before for row in report.rows)
    repetition = firm or (again.fresh() if report.instance.tune else f"{again.fresh()} ({runs} runs)")
    what = "asks again with fresh seeds" if not steps else "trains twice as long, with fresh seeds"
    return f"Next: {repetition} {what}, in a ledger of its own: adding seeds here because of the result would mislead."


def _of_imported(report: LadderReport, step: str) -> str:
    """What decides more of imported runs, which are made elsewhere."""
    again = f"and run {report.read_again} again"
    if step == "firm":
        return (
            f"Next: verdicts are firm with {verdicts.LEAST_SEEDS} seeds in each rung: make them with your tracker, "
            f"{again}. Make them for all rungs, whatever these verdicts say: adding seeds because of a result misleads."
        )
    detect = command(report, report.instance.short_name, "report", "--detect", "D")
    return (
        f"Next: {detect} says how many seeds decide a difference of D. Make runs with so many fresh seeds, and import "
        "them under another name: adding seeds here because of the result would mislead."
    )


def more(report: LadderReport, request: LadderRequest | str | None) -> str:
    further = [["report", "--details"], ["plot", "--out", "ladder.pdf"]]
    if isinstance(report, ChosenReport):
        by = [word for path in report.by for word in ("--by", path)]
        further = [["report", *by, "--choose", "--details"], ["report", *by]]
    commands = [command(report, request, *words) for words in further]
    commands.append(clean(shlex.join(["lrurun", "ui", *paths.place_options()])))
    return f"More: {' · '.join(commands)}"


def _request(report: LadderReport, request: LadderRequest | None) -> LadderRequest:
    """The request that was made, or one for the instance of the report."""
    instance = report.instance
    return request or LadderRequest(
        task=instance.task,
        ladder=instance.ladder,
        profile=instance.profile,
        tune=instance.tune,
        extend=instance.extend or None,
        sets=instance.set,
    )


_READING = ("report", "plot", "claims")
"""Commands that read an instance by its name; those that train take the options of its request."""


def command(report: LadderReport, request: LadderRequest | str | None, name: str, *more: str) -> str:
    """A command about the instance, by its task where that is enough, else by its name; one that trains as it was
    requested."""
    if not isinstance(request, str):
        request = _request(report, request)
        instance = report.instance.short_name
        if name not in _READING or request.is_plain or not instance:
            if name == "claims":  # which knows tasks by their names
                request = structs.replace(request, task=report.instance.task)
            return clean(request.command(*more, *plugins.load_options(), name=name))
        request = instance
    words = ["lrurun", name, "--instance", request, *more]
    return clean(shlex.join([*words, *paths.place_options(), *plugins.load_options()]))
