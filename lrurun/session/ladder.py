"""`lrurun.ladder`: a ladder that is planned, trained, reported and drawn from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from lrurun import plugins, studies
from lrurun.config import names
from lrurun.config.recipe import MOST_ADDED
from lrurun.errors import NotFoundError, UsageError, check_type
from lrurun.instances import lookup, requests
from lrurun.instances.requests import LadderRequest
from lrurun.reading.rows import PlanRows, ReportRows, report_rows
from lrurun.session import cautions, opening
from lrurun.session.arguments import (
    AnyPath,
    check_whole,
    check_width,
    given_places,
    names_of_arguments,
    plain_value,
    seeds_of,
    text_of,
    texts,
    training_options,
)
from lrurun.session.training import LadderTraining

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lrurun.config import planning
    from lrurun.ledger.ledger import Ledger
    from lrurun.paths import Places
    from lrurun.report.tables.loaded_instance import LoadedInstance
    from lrurun.report.widths import Width
    from lrurun.session.plotting import InstanceFigure


class LadderSession:
    """A ladder on a task, in a ledger. Ladder, recipe and ledger are read again by each method, as by each command.

    `lrurun.ladder` makes it. A method raises what ends the command of its name with another exit code than 0, which the
    exception has as `exit_code`:

    - `LrurunError` (1): it could not be done: data, a folder, the disk; and its subclasses
    - `UsageError` (2): an unknown name, a wrong value, or an argument of another type
    - `UnfinishedError` (3): some runs have failed, all others are finished
    - `NotFoundError` (4): the ledger has no such results
    - `LedgerError` (5): the ledger is busy, of another version, or not a ledger
    - `Stopped` (130, 143, 129): ^C, SIGTERM or the time limit, or SIGHUP stopped the training; the state is saved, and
      the same call continues. It is no `LrurunError`.

    All are in `lrurun.errors`. An `LrurunError` has a `message`, and a `hint` that says what to do.
    """

    def __init__(self, places: Places, request: LadderRequest) -> None:
        self.places = places
        """The ledger, the folder of all runs and the folder of all data."""
        self.request = request
        """The task, the ladder, and all that decides the runs."""

    def __repr__(self) -> str:
        """The command that trains the same, for example `<lrurun ladder npDigits --tune>`."""
        return f"<{self.request.command()}>"

    @names_of_arguments()
    def plan(self) -> PlanRows:
        """What would be trained, what is done, and the time that the rest takes: what `lrurun plan` prints.

        Returns: a row for each rung, in seconds, steps and numbers of runs; `plan` has the sum of all.

        Raises:
            UsageError: the ladder or the recipe is not valid any more.
        """
        from lrurun.instances import remaining

        with opening.read(self.places) as ledger:
            return PlanRows(remaining.planned(self.places, self.request, self._plan(), ledger))

    @names_of_arguments()
    def train(
        self,
        *,
        jobs: int | None = None,
        pack: int = 1,
        time_limit: str | float | None = None,
        on: str = "local",
        detach: bool = False,
        fresh: bool = False,
    ) -> None:
        """Trains what remains, in worker processes, and returns when all runs are finished.

        The process that calls needs no jax. It shows the progress as the command does, in a notebook as a table that
        changes. ^C and the button that interrupts a kernel save all runs and raise `Stopped`. If the process is killed,
        its workers exit. After any of these, the same call continues. In another thread than the main one, Python gives
        no signals: only `time_limit` stops the training there.

        Args:
            jobs: the number of worker processes; None for the cores by the threads of a run, or the accelerators by its
                devices.
            pack: how many seeds of a rung one process trains in one program, from 1 to 64.
            time_limit: seconds, or a text as "45m", "1h30m" or "12:00:00", within which all is saved.
            on: where runs are trained: "local", "slurm", "ray", or a table of your configuration file; settings as in
                "slurm:nodes=4,partition=gpu".
            detach: whether to return once a job is submitted.
            fresh: whether finished runs are set aside and trained again.

        Raises:
            Stopped: a signal or the time limit stopped it; all runs are saved.
            UnfinishedError: some runs have failed three times.
            UsageError: a wrong argument, or a ladder, recipe or program that is not valid.
            LedgerError: the ledger is busy or of another version.
            LrurunError: data cannot be prepared, or folders or the engine do not allow it.
        """
        options = training_options(jobs=jobs, pack=pack, time_limit=time_limit, on=on, detach=detach, fresh=fresh)
        opening.refuse_lost_ledger(self.places)
        signals = options.signals()
        training = LadderTraining(
            places=self.places, request=self.request, plan=self._plan(), options=options, signals=signals
        )
        cautions.report_local_documents(self.request)
        training.warn()
        with options.sentences():
            end = training.train()
        end.check()

    @names_of_arguments()
    def report(self) -> ReportRows:
        """The comparison of the rungs, as `lrurun report` prints it.

        Returns: a row for each rung: `rung`, `n`, `mean`, `stderr`, `verdict`, and in `comparison` the difference to
            its base with its interval and p. Scores are as in the ledger: an accuracy is a fraction. Also `claims` and
            `cautions`.

        Raises:
            NotFoundError: nothing of it is in the ledger.
        """
        with opening.read(self.places) as ledger:
            return report_rows(self._loaded(ledger), self.request.rungs)

    @names_of_arguments()
    def plot(
        self,
        kind: InstanceFigure = "ladder",
        *,
        metrics: str | Sequence[str] = (),
        rungs: str | Sequence[str] = (),
        examples: int | None = None,
        differences: bool = True,
        plain: bool = False,
        width: Width = "column",
    ) -> Figure:
        """A figure of `lrurun plot`, drawn by Matplotlib, which a notebook shows.

        Args:
            kind: "ladder", "curves", "rates", "eigenvalues", "norms", "speed", "slots", "lengths", "items", "errors" or
                "predictions".
            metrics: for "curves", those that are drawn, as "train/loss"; for "items", one result.
            rungs: for "items", a rung, which is compared with its base, or two.
            examples: for "errors" and "predictions", how many examples of the validation split are predicted.
            differences: for "ladder", whether what each change did is drawn beside the scores, with its interval and
                verdict.
            plain: whether it is drawn without title and caption, as for a paper.
            width: "column" (3.3 inches) or "page" (6.75).

        Raises:
            NotFoundError: no run is finished that it could show.
            UsageError: an unknown kind, or an argument that is not for it.
        """
        from lrurun.report.figures import figure_files
        from lrurun.session import plotting

        check_whole("examples", examples, 1)
        names = texts("metrics", metrics, 'as in metrics=["train/loss"]')
        compared = texts("rungs", rungs, 'as in rungs="gamma-norm"')
        plotting.check(kind, names, compared, examples, differences=differences)
        check_width(width)
        with opening.read(self.places) as ledger:
            loaded = self._loaded(ledger)
            figure = plotting.of_instance(
                kind, loaded, self.places, "train()", names, compared, examples, differences=differences
            )
        return figure_files.shown(figure.without_texts() if plain else figure, width)

    def _plan(self) -> planning.Plan:
        return opening.plan_to_train(self.places, self.request)

    def _loaded(self, ledger: Ledger) -> LoadedInstance:
        """The instance with its runs. Raises NotFoundError if the ledger does not have it."""
        from lrurun.report.tables.loaded_instance import LoadedInstance

        plan = self.request.plan_in(ledger)
        if (instance := lookup.find(ledger, plan)) is None:
            raise NotFoundError(f"{self!r}: nothing of it is in {self.places.ledger}", "train() trains it")
        return LoadedInstance(plan, instance, ledger)


@names_of_arguments()
def ladder(
    task: AnyPath,
    *,
    seeds: int | Sequence[int] | None = None,
    tune: bool = False,
    extend: int | None = None,
    set: Mapping[str, Any] | None = None,
    ladder: AnyPath | None = None,
    profile: str | None = None,
    rungs: str | Sequence[str] = (),
    decide: bool = False,
    max_seeds: Literal[12, 20] | None = None,
    name: str | None = None,
    ledger: AnyPath | None = None,
    runs_dir: AnyPath | None = None,
    data_dir: AnyPath | None = None,
    files: Sequence[AnyPath] = (),
) -> LadderSession:
    """A ladder on a task, which can be planned, trained, reported and drawn: what `lrurun ladder` is given.

    Nothing is trained or written yet.

        ladder = lrurun.ladder("npDigits", seeds=12, set={"optim.lr": 0.01})
        ladder.train()
        ladder.report()

    Args:
        task: a task, or the path of a recipe, also of one for your own program.
        seeds: a number (3 stands for 0, 1, 2) or a list; None for the number in the recipe.
        tune: whether learning rates are first chosen by validation score.
        extend: with `tune`: how many values the grid of each rung may get, one after another, while its best value is
            the smallest or the largest; None for the number in the recipe.
        set: dotted path -> value, as {"optim.lr": 0.002}: the values of `--set`.
        ladder: a ladder, or the path of one; None for the one in the recipe, else `lru`.
        profile: a reduced configuration of the recipe, as "smoke".
        rungs: only these rungs.
        decide: whether seeds are added until each difference and claim is decided.
        max_seeds: with `decide`: 12 or 20 seeds at most; None for 20.
        name: the short name of the instance, by which commands find it; None for one made of files and settings.
        ledger: a file, or the URL of a PostgreSQL database; None for the ledger of the commands.
        runs_dir: the folder of logs and checkpoints, or its URL; None for the one beside the ledger.
        data_dir: the folder of all data; None for the one that commands use.
        files: plug-ins with tasks, recurrences and optimisers of yours, as `--load` takes them.

    Raises:
        UsageError: unknown names, values that are not valid, or an argument of another type.
    """
    hint = 'as in ladder("npDigits", profile="smoke", seeds=3, set={"optim.lr": 0.01})'
    check_type("task", task, str | os.PathLike, "a task or a path", hint)
    check_type("ladder", ladder, str | os.PathLike | None, "text or a path", hint)
    check_type("profile", profile, str | None, "text", hint)
    check_type("name", name, str | None, "text", hint)
    check_type("set", set, Mapping | None, "a mapping", hint)
    for flag_name, flag in (("tune", tune), ("decide", decide)):
        check_type(flag_name, flag, bool, "True or False", hint)
    check_whole("max_seeds", max_seeds, 1)
    check_whole("extend", extend, 0, MOST_ADDED)
    plugins.load_files(files, named="files")
    task_name = os.fspath(task)
    if studies.is_task(task_name):
        study = task_name.removeprefix(studies.PREFIX)
        raise UsageError(f"task: {task_name} is a study, which no ladder has", f'lrurun.study("{study}") computes it')
    request = LadderRequest(
        task=task_name,
        ladder=requests.ladder_or_default(None if ladder is None else os.fspath(ladder), task_name),
        profile=profile,
        rungs=texts("rungs", rungs, 'as in rungs=["ring-init", "gamma-norm"]'),
        seeds=seeds_of(seeds),
        tune=tune,
        extend=extend,
        sets={text_of("set", path, hint): plain_value(value) for path, value in (set or {}).items()},
        decide=decide,
        max_seeds=max_seeds,
        name=None if name is None else names.check(name, "--name"),
    )
    if decide and (seeds is not None or request.rungs):
        raise UsageError("decide and seeds or rungs exclude each other", "max_seeds=12 bounds the seeds")
    if max_seeds is not None and not decide:
        raise UsageError("max_seeds: belongs to decide", "add decide=True, or leave it out")
    request.check()
    places = given_places(ledger, runs_dir, data_dir)
    request.chosen(opening.plan_to_train(places, request))
    return LadderSession(places, request)
