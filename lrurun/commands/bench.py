"""`lrurun bench`: training speed compared with the published implementations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Optional, get_args

import typer
from msgspec import UNSET, Struct, UnsetType, convert

from lrurun import console, table
from lrurun.commands._shared import output
from lrurun.commands._shared.options import Json, choice, number
from lrurun.commands._shared.rules import examples

if TYPE_CHECKING:
    from lrurun.bench import Result

What = Literal["scan", "scan-varying", "layer", "layers", "rnn", "step", "claims", "loop"]


class MachineSpeed(Struct, frozen=True, kw_only=True):
    """The machine that was measured, and how fast it is. Speeds are in 1e9 per second."""

    cpu: str
    cores: int
    copy_gb_s: float
    product_gflop_s: float
    device: str
    platform: str
    jax: str


class ResultOutput(Struct, frozen=True, kw_only=True):
    """A comparison with a published implementation. Ratios above 1: ours is faster, smaller or more exact.

    The unit says which of the pairs are set.
    """

    name: str
    against: str
    ratio: float
    """Median over the rounds."""
    low: float
    high: float
    unit: str
    rounds: int
    seconds: float | UnsetType = UNSET
    against_seconds: float | UnsetType = UNSET
    ratio_of_least: float | UnsetType = UNSET
    """The ratio of the least seconds of both, which other work on the machine disturbs less."""
    bytes: float | UnsetType = UNSET
    against_bytes: float | UnsetType = UNSET
    error: float | UnsetType = UNSET
    against_error: float | UnsetType = UNSET
    of_limit: float | UnsetType = UNSET


class SpeedClaim(Struct, frozen=True, kw_only=True):
    """A claim about speed on a task whose sizes were measured."""

    task: str
    text: str
    source: str
    verdict: str
    detail: str
    ratio: float
    low: float
    high: float


class BenchDocument(Struct, frozen=True):
    """The JSON of `lrurun bench`."""

    machine: MachineSpeed
    results: list[ResultOutput]
    claims: list[SpeedClaim]


@examples(
    "lrurun bench",
    "lrurun bench scan",
)
def bench(
    what: Annotated[
        Optional[What],
        typer.Argument(
            help="scan, scan-varying, layer, layers (all recurrences), rnn, step, loop [all], or claims.",
            **choice("bench", get_args(What)),
        ),
    ] = None,
    shape: Annotated[
        Optional[list[str]],
        typer.Option(metavar="NAME", help="digits, scifar, listops, long, or a task for its sizes in the paper."),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            metavar="N",
            help="How often each implementation is measured.",
            **number("--rounds", int, 1, 1000, example=5),
        ),
    ] = 5,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="S",
            help="Duration of each measurement.",
            **number("--seconds", float, 0.01, 600, example=2),
        ),
    ] = 2.0,
    json: Json = False,
) -> int:
    """Measure training speed against the published implementations.

    Both are measured on this machine, in turns; the results are ratios. The published ones are rewritten in lrurun.
    claims compares training steps of the rungs of the papers' claims about speed on a task, and judges these claims.
    """
    from lrurun import bench

    machine, results = bench.measure(what, shape or [], rounds=rounds, seconds=seconds)
    known = convert(machine, MachineSpeed)
    if json:
        output.write_json(BenchDocument(known, [_result_output(result) for result in results], _claims(known, results)))
    else:
        _print(known, results, rounds)
    return 0


_UNITS = {"times as fast": "seconds", "times as small": "bytes", "times as exact": "error"}


def _result_output(result: Result) -> ResultOutput:
    quantity = _UNITS[result.unit]
    more = {quantity: result.ours, f"against_{quantity}": result.theirs}
    if quantity == "seconds":
        more["ratio_of_least"] = result.least[1] / result.least[0]
    if result.limit is not None:
        more["of_limit"] = result.limit
    low, high = result.interval
    return ResultOutput(
        name=result.name,
        against=result.against,
        ratio=result.ratio,
        low=low,
        high=high,
        unit=result.unit,
        rounds=len(result.ratios),
        **more,
    )


def _claims(machine: MachineSpeed, results: Sequence[Result]) -> list[SpeedClaim]:
    """The claims about speed on the tasks that were measured."""
    from lrurun.bench import speed_pairs
    from lrurun.config.ladder import load_ladder
    from lrurun.judging.claims import SpeedRatio, judge_speed

    speed_claims = []
    measured_pairs = {pair.name: pair for pair in speed_pairs()} if results else {}
    for result in results:
        if (pair := measured_pairs.get(result.name)) is None:
            continue
        ladder, task = load_ladder(pair.ladder), pair.task
        for claim in ladder.claims:
            if claim.is_about_speed and task in claim.tasks and (claim.rung, claim.than) == (pair.rung, pair.than):
                low, high = result.interval
                measured = SpeedRatio(ratio=result.ratio, low=low, high=high, device=machine.device)
                judged = judge_speed(ladder, claim, task, measured)
                speed_claims.append(
                    SpeedClaim(
                        task=task,
                        text=judged.text,
                        source=judged.source,
                        verdict=judged.verdict,
                        detail=judged.detail,
                        ratio=measured.ratio,
                        low=low,
                        high=high,
                    )
                )
    return speed_claims


def _print(machine: MachineSpeed, results: Sequence[Result], rounds: int) -> None:
    memory = {r.name.removeprefix("memory-"): r.ours / r.theirs for r in results if r.unit == "times as small"}
    rows = []
    for result in results:
        if result.unit != "times as fast":
            continue
        low, high = result.interval
        rows.append(
            [
                result.name,
                *(f"{1e3 * s:,.0f}" if s > 1 else f"{1e3 * s:.3g}" for s in (result.ours, result.theirs)),
                f"{result.ratio:.2f} ({low:.2f} to {high:.2f})",
                "" if result.limit is None else f"{100 * result.limit:.0f} %",
                f"{memory[result.name]:.2f}" if result.name in memory else "",
                "" if result.compile is None else f"{result.compile[0]:.2g} / {result.compile[1]:.2g}",
            ]
        )
    if rows:
        headers = ["what", "ours, ms", "theirs, ms", "times as fast", "of limit", "memory", "compile, s"]
        table.show_text(headers, rows, order=["compile, s", "memory", "of limit", "theirs, ms", "ours, ms"])
    errors = {r.name: r for r in results if r.unit == "times as exact"}
    pairs = [(e, errors[e.name.replace("error/", "error-gradient/")]) for e in errors.values() if "/" in e.name[:6]]
    if pairs:
        rows = [[e.name, f"{e.ours:.1e}", f"{e.theirs:.1e}", f"{g.ours:.1e}", f"{g.theirs:.1e}"] for e, g in pairs]
        table.show_text(["what", "states", "published", "gradient of lambda", "its published"], rows)
    notes = [
        f"{machine.cpu}, {machine.cores} cores, {machine.device}; jax {machine.jax}; "
        f"copies {machine.copy_gb_s:.0f} GB/s, multiplies at {machine.product_gflop_s:.0f} GFLOP/s.",
        f"Forward and backward. Times as fast: median over {rounds} rounds, one form after the other in each, and the "
        "95 % interval of the median (under six rounds the least and the most). Limit: the time of the products and of "
        "the scan's one pass at those rates. Memory: temporary, ours over theirs. Compile: tracing too, no cache.",
        *_compared(results),
    ]
    if pairs:
        notes.append(
            "Errors: largest over time, over the root mean square, worst state; |lambda| = 0.9999, 16,384 steps."
        )
    notes += [
        f"{claim.task}: {claim.verdict}: {claim.text}. ({claim.source}) {claim.detail}."
        for claim in _claims(machine, results)
    ]
    for note in notes:
        console.paragraph(note)


def _compared(results: Sequence[Result]) -> list[str]:
    """Sentences on what each measurement is compared with."""
    groups = {r.name.partition("/")[0]: r.against for r in results if r.unit == "times as fast"}
    return [f"{group}: against {against}." for group, against in groups.items()]
