"""Warnings of commands about what works, but may not be what the user wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lrurun import console, paths
from lrurun.errors import plural

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance
    from lrurun.paths import Places


def warn_of_batches(plan: planning.Plan, rungs: Sequence[planning.ResolvedRung]) -> None:
    """Warns of batches that have more examples than the training split, so that each repeats some."""
    from lrurun.data.task import Task

    if (
        plan.kind == "program" or type(plan.task).sampler is not Task.sampler
    ):  # its own data, or new examples at every step
        return
    sizes = plan.task.sizes(plan.options)
    large: dict[tuple[int, int], list[str]] = {}
    for rung in rungs:
        train = rung.training.train
        examples = sizes["train"] + (sizes["validation"] if train.protocol == "paper" else 0)
        if train.batch > examples:
            large.setdefault((train.batch, examples), []).append(rung.name)
    for (batch, examples), names in large.items():
        which_rungs = "" if len(names) == len(rungs) else f" of {', '.join(names)}"
        console.warn(
            f"train.batch = {batch:,}{which_rungs}: larger than the training split of {examples:,} examples, "
            "so that each batch repeats some; choose at most that many"
        )


def say_of_parts(rungs: Sequence[planning.ResolvedRung]) -> None:
    """Says of which rungs the steps depend on the parts of a batch."""
    from lrurun.instances import phrases

    if text := phrases.parts_of_batches({rung.name: rung.config for rung in rungs}):
        console.say(text)


def warn_of_cores(rungs: Sequence[planning.ResolvedRung], jobs: int | None) -> None:
    """Warns of more threads, or of many more workers, than this machine has cores. Accelerators have other limits."""
    from lrurun import machine

    cores = machine.cores()
    threads = max(rung.execution.threads for rung in rungs)
    if threads > cores:
        console.warn(
            f"execution.threads = {threads}: this machine has {plural(cores, 'core')}, and more threads make "
            "no run faster; results depend on the number of threads"
        )
    warn_of_jobs(jobs, min(threads, cores))


def warn_of_jobs(jobs: int | None, threads: int = 1) -> None:
    """Warns of more than twice as many workers of `threads` threads as this machine has cores for."""
    from lrurun import machine

    cores = machine.cores()
    room = machine.default_jobs(threads)
    if jobs is not None and jobs > 2 * room and not machine.accelerators():
        console.warn(
            f"--jobs {jobs}: this machine has {plural(cores, 'core')}, for {plural(room, 'worker')}: more of them are "
            f"not faster together, and need memory; at most {cores} compile at once; without --jobs there are {room}"
        )


def warn_of_scale(plan: planning.Plan) -> None:
    """Says what `phrases.scale` does: a warning on a machine without accelerator."""
    from lrurun import machine
    from lrurun.instances import phrases

    if text := phrases.scale(plan):
        (console.say if machine.accelerators() else console.warn)(text)


def report_local_documents(request: LadderRequest) -> None:
    """Reports a local ladder or recipe that is used instead of a packaged one of the same name."""
    from lrurun.config.ladder import read_ladder

    for path in dict.fromkeys((paths.find("recipes", request.task), paths.find("ablations", request.ladder))):
        if paths.hides_packaged("recipes", path) or paths.hides_packaged("ablations", path):
            console.say(f"using {path}, which hides the packaged file of that name")
    ladder = read_ladder(request.ladder)
    packaged = paths.packaged("ablations") / f"{ladder.name}.toml"
    file = paths.find("ablations", request.ladder)
    if packaged.is_file() and file.resolve() != packaged.resolve() and file.stem != ladder.name:
        console.warn(
            f"{file} has the name {ladder.name!r} of a packaged ladder: a ledger treats both as the same ladder"
        )


def say_without_models(ledger: Ledger, places: Places, instances: Sequence[LadderInstance]) -> None:
    """Says how many finished runs have no folder in the runs folder, such as one that was moved: no model is left."""
    if paths.is_mirror(places.runs):
        return
    finished = {
        run.id
        for instance in instances
        if instance.kind == "training"
        for run in ledger.runs(instance.key, states=["done"], brief=True)
    }
    if gone := [run for run in finished if not (places.runs / run).is_dir()]:
        verb = "has" if len(gone) == 1 else "have"
        console.say(
            f"{plural(len(gone), 'finished run')} {verb} no model in {places.runs}: name the runs folder with "
            "--runs-dir, or train again with lrurun ladder ... --fresh"
        )
