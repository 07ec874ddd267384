"""Training of what remains of a ladder: from the checks before it to the end of the last run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from lrurun import console, paths
from lrurun.errors import LedgerError, Stopped, UnfinishedError, UsageError, plural
from lrurun.session import cautions, forgetting, opening, preparing

if TYPE_CHECKING:
    from lrurun.config import planning
    from lrurun.instances.requests import LadderRequest
    from lrurun.ledger.ledger import Ledger
    from lrurun.ledger.values import LadderInstance, Run
    from lrurun.paths import Places
    from lrurun.report.live.views import LadderView
    from lrurun.runner.executors import Executor
    from lrurun.runner.selection import Selection
    from lrurun.runner.signals import Signals
    from lrurun.runner.supervisor import Supervisor, SupervisorResult
    from lrurun.runner.work import Work
    from lrurun.session.training_options import TrainingOptions


class TrainingEnd(Struct, frozen=True, kw_only=True):
    """How a training ended that nothing stopped."""

    submitted: bool
    """Whether runs go on elsewhere: a job was submitted, or this process is a node supervisor and others have them."""
    unfinished: Sequence[str] = ()
    """A sentence on each run that is not finished: it has failed too often."""

    def check(self) -> None:
        """Raises UnfinishedError if runs are not finished."""
        if self.unfinished:
            raise UnfinishedError(
                f"{plural(len(self.unfinished), 'run')} not finished: {'; '.join(self.unfinished)}",
                "call train() again to retry them",
            )


class LadderTraining(Struct, frozen=True, kw_only=True, dict=True):
    """A request to train a ladder, with how and where."""

    places: Places
    request: LadderRequest
    plan: planning.Plan
    """The plan of the request."""
    options: TrainingOptions
    signals: Signals

    @cached_property
    def rungs(self) -> Sequence[planning.ResolvedRung]:
        """The requested rungs."""
        return self.request.chosen(self.plan)[0]

    @cached_property
    def seeds(self) -> Sequence[int]:
        """The requested seeds."""
        return self.request.chosen(self.plan)[1]

    def warn(self) -> None:
        """Warns of what works, but may not be what the user wants: batches, cores, the paper's scale."""
        cautions.warn_of_batches(self.plan, self.rungs)
        if not self.options.dry_run:  # the plan says so
            cautions.say_of_parts(self.rungs)
        if self.options.site.is_local:
            cautions.warn_of_cores(self.rungs, self.options.jobs)
            if not self.options.dry_run:  # the plan says so
                cautions.warn_of_scale(self.plan)

    def executor(self) -> Executor:
        """The executor that trains, which is checked. Nothing is written.

        Raises:
            LrurunError: it cannot work, or not with the runs of a program.
        """
        of_programs = self.plan.kind == "program"
        if of_programs and self.options.pack > 1:
            raise UsageError(
                "--pack: is for lrurun's own models, of which one process can train several seeds", "leave it out"
            )
        if of_programs and paths.is_mirror(self.places.runs):
            raise UsageError(
                f"--runs-dir {paths.shown_runs(self.places.runs)}: what a program saves is not copied to an object "
                "store",
                "choose a folder, which all nodes share",
            )
        return self.options.make_executor(
            self.places,
            self.request.arguments(self.seeds),
            devices=max(rung.execution.devices for rung in self.rungs),
            of_programs=of_programs,
            stop_seconds=self._stop_seconds,
        )

    @property
    def _stop_seconds(self) -> float:
        """How long a program may take to save and exit."""
        return max(rung.execution.stop_seconds for rung in self.rungs) if self.plan.kind == "program" else 0.0

    def train(self) -> TrainingEnd:
        """Trains what remains, with a live view, and says where nothing does.

        Raises:
            Stopped: a signal or the time limit stopped it while runs remain; all of them are saved.
            LrurunError: data, folders, ledger or the executor do not allow it.
        """
        places, options = self.places, self.options
        self.reserve()
        self._check_name()
        executor = self.executor()
        self.check_command()
        if not options.fresh and not opening.is_writable(places) and self._is_finished():
            return TrainingEnd(submitted=False)
        try:
            with self.signals.recorded():
                self.prepare()
                with opening.write(places, training=True, create=not options.on_node) as ledger:
                    forgetting.go_on(ledger, places)  # before a run that was forgotten is queued again
                    return self._train(ledger, executor)
        except Stopped as stopped:
            stopped.when = stopped.when or "before any training"
            raise

    def _check_name(self) -> None:
        """Refuses a name that another instance has, before data are prepared. Raises UsageError."""
        from lrurun.instances import naming

        if self.request.name is not None and not self.options.on_node:
            with opening.read(self.places) as ledger:
                naming.of_plan(ledger, self.plan, self.request.name)

    def reserve(self) -> None:
        """Leaves a program the time that it may take to save, before the time limit."""
        self.signals.reserve(self._stop_seconds)

    def check_command(self) -> None:
        """Checks that a program's command is on this machine. Nodes may have others.

        Raises:
            UsageError: it is not.
        """
        if self.plan.kind == "program" and self.options.site.is_local and not self.options.on_node:
            preparing.check_command(self.places, self.request, self.plan)

    def _is_finished(self) -> bool:
        """Whether nothing remains; says so. The ledger is only read."""
        with opening.read(self.places) as ledger:
            if not preparing.is_finished(ledger, self.places, self.request, self.plan):
                return False
            _say_nothing_to_do(ledger, self.places, self.request, self.plan)
            return True

    def prepare(self) -> None:
        """Checks the places and prepares the data. A node has what the command that started it has prepared."""
        places, on_node = self.places, self.options.on_node
        with preparing.no_new_folder(places.runs):
            if not on_node:
                preparing.check_places(places, self.plan)
            if opening.exists(places) or (not on_node and opening.can_be_created(places)):
                preparing.prepare(places, self.request, self.plan, self.signals, fresh=self.options.fresh)
        if not on_node:
            preparing.warn_of_data(places, self.plan)

    def _train(self, ledger: Ledger, executor: Executor) -> TrainingEnd:
        """Records the request and trains its runs, look after look with `decide`."""
        from lrurun.runner import run_files

        supervisors: list[Supervisor] = []
        try:
            ends = self._supervise(ledger, executor, supervisors)
            if self.options.on_node or (self.options.detach and ends and ends[-1].worked):
                return TrainingEnd(submitted=True)
            if not any(end.worked for end in ends):
                _say_nothing_to_do(ledger, self.places, self.request, self.plan)
            if self.signals.received is not None and supervisors and supervisors[-1].remaining()[0] > 0:
                raise Stopped(self.signals.received)
        except Stopped as stopped:
            if supervisors:  # none while the ledger was busy
                stopped.when = _when(supervisors[-1])
            raise
        finally:
            for supervisor in supervisors[-1:]:
                # where the ledger is lost or away, what ended the training is the error to show
                with suppress(LedgerError):
                    run_files.keep_ladder(ledger, self.places.runs, supervisor.instance.key)
        return TrainingEnd(
            submitted=False, unfinished=[text for end in ends[-1:] for text in _unfinished(ledger, end.runs)]
        )

    def _supervise(self, ledger: Ledger, executor: Executor, supervisors: list[Supervisor]) -> list[SupervisorResult]:
        """The ends of the supervisors of each selection, of which one that leaves runs unfinished is the last.

        Each supervisor is appended to `supervisors` before it begins.
        """
        from lrurun.report.live import notebook
        from lrurun.runner.supervisor import Supervisor, while_busy

        ends: list[SupervisorResult] = []
        with notebook.ladder_view() as display:
            while_busy(ledger, display.say, self.signals)
            instance = self.add_instance(ledger, display)
            selections = self._selections(ledger, instance, display)  # a design that is refused records no request
            self.record_request(ledger, instance, display)
            for selection in selections:
                work = selection.work(instance, self.places, **self.options.work_fields)
                supervisors.append(Supervisor(ledger, work, selection, display, self.signals, executor))
                ends.append(self.options.train(supervisors[-1]))
                if ends[-1].exit_code:
                    break
        return ends

    def add_instance(self, ledger: Ledger, display: LadderView) -> LadderInstance:
        """The instance in the ledger, which is added where it is new; says where it is renamed or hidden."""
        from lrurun.instances import lookup, naming, phrases

        plan = self.plan
        before = lookup.find(ledger, plan)
        instance = ledger.add_ladder(
            plan.ladder.name,
            plan.recipe.task,
            plan.profile,
            plan.spec,
            plan.short_name,
            kind=plan.kind,
            others=naming.others(ledger, plan),
            # the command that started a node has named it, and it may have been renamed since
            chosen=None if self.options.on_node else self.request.name,
        )
        if changed := naming.renamed(before, instance):
            display.say(changed)
        if instance.key in ledger.hidden():
            display.say(phrases.hidden(instance))
        return instance

    @property
    def selection(self) -> Selection:
        """The requested runs."""
        from lrurun.runner.selection import Selection

        return Selection(plan=self.plan, rungs=self.rungs, seeds=self.seeds)

    def record_request(self, ledger: Ledger, instance: LadderInstance, display: LadderView) -> None:
        """Records the request and the documents of the instance, and says which instances it supersedes."""
        from lrurun.instances import continuing, documents, requests

        superseded = continuing.superseded(ledger)
        requests.remember(ledger, instance, self.request, self.plan, self.seeds)
        for key in continuing.superseded(ledger).keys() - superseded.keys():
            display.say(continuing.sentence(ledger.ladder(key), instance))
        documents.record(ledger, instance, self.plan)

    def _selections(self, ledger: Ledger, instance: LadderInstance, display: LadderView) -> Iterable[Selection]:
        """The runs that are trained, one selection after another. Each is checked when it is asked for."""
        from lrurun.session import rounds

        selections: Iterable[Selection] = [self.selection]
        if self.request.decide:
            selections = rounds.selections(ledger, self.plan, instance, self.request.max_seeds, display)
        return (self.checked(selection, ledger) for selection in selections)

    def checked(self, selection: Selection, ledger: Ledger) -> Selection:
        """The selection, if its finished runs that are kept were trained on the prepared data.

        Raises:
            LrurunError: some were trained on other data.
        """
        if self.plan.kind == "program" or self.options.fresh:
            return selection
        return preparing.checked(selection, ledger, self.places)


class SweepTraining(Struct, frozen=True, kw_only=True):
    """The trainings of the instances of a sweep, whose runs are in one queue: rung by rung, so that runs with the same
    program follow each other in a worker, whichever instance they are of."""

    trainings: Sequence[LadderTraining]
    """One for each instance, with the same places, options, signals and seeds. Where rungs differ, each trains its
    own."""

    @property
    def first(self) -> LadderTraining:
        """The training of the first instance."""
        return self.trainings[0]

    def train(self) -> TrainingEnd:
        """Trains what remains of all instances, with one live view, and says where nothing does.

        All instances are recorded and queued before any run is trained.

        Raises:
            Stopped, LrurunError: as `LadderTraining.train`.
        """
        places, first = self.first.places, self.first
        first.reserve()
        executors = [training.executor() for training in self.trainings]
        for training in self.trainings:
            training.check_command()
        if not first.options.fresh and not opening.is_writable(places) and self._is_finished():
            return TrainingEnd(submitted=False)
        try:
            with first.signals.recorded():
                for training in self.trainings:
                    training.prepare()
                with opening.write(places, training=True) as ledger:
                    forgetting.go_on(ledger, places)  # before a run that was forgotten is queued again
                    return self._train(ledger, executors[0])
        except Stopped as stopped:
            stopped.when = stopped.when or "before any training"
            raise

    def _is_finished(self) -> bool:
        """Whether nothing remains of any instance; says so. The ledger is only read."""
        with opening.read(self.first.places) as ledger:
            if not all(preparing.is_finished(ledger, t.places, t.request, t.plan) for t in self.trainings):
                return False
            self._say_nothing_to_do(ledger)
            return True

    def _say_nothing_to_do(self, ledger: Ledger) -> None:
        from lrurun.instances import lookup

        console.say(f"nothing to do: every run of these {plural(len(self.trainings), 'instance')} is finished")
        instances = [lookup.find(ledger, training.plan) for training in self.trainings]
        cautions.say_without_models(ledger, self.first.places, [one for one in instances if one is not None])

    def _train(self, ledger: Ledger, executor: Executor) -> TrainingEnd:
        from lrurun.report.live import notebook
        from lrurun.runner import run_files
        from lrurun.runner.supervisor import Supervisor, while_busy

        supervisor: Supervisor | None = None
        first = self.first
        try:
            with notebook.ladder_view() as display:
                while_busy(ledger, display.say, first.signals)
                selections = [training.checked(training.selection, ledger) for training in self.trainings]
                instances = [training.add_instance(ledger, display) for training in self.trainings]
                for training, instance in zip(self.trainings, instances, strict=True):
                    training.record_request(ledger, instance, display)
                work = sweep_work(selections, instances, first.places, **first.options.work_fields)
                supervisor = Supervisor(
                    ledger, work, selections[0], display, first.signals, executor, others=selections[1:]
                )
                end = first.options.train(supervisor)
            if not end.worked:
                self._say_nothing_to_do(ledger)
            if first.signals.received is not None and supervisor.remaining()[0] > 0:
                raise Stopped(first.signals.received)
        except Stopped as stopped:
            if supervisor is not None:  # None while the ledger was busy
                stopped.when = _when(supervisor)
            raise
        finally:
            if supervisor is not None:
                for instance in supervisor.instances:
                    with suppress(LedgerError):  # what ended the training is the error to show
                        run_files.keep_ladder(ledger, first.places.runs, instance.key)
        return TrainingEnd(submitted=False, unfinished=_unfinished(ledger, end.runs))


def sweep_work(
    selections: Sequence[Selection], instances: Sequence[LadderInstance], places: Places, **fields: Any
) -> Work:
    """The work on all instances of a sweep, whose seeds are the same."""
    from lrurun.runner.selection import programs_of

    work = selections[0].work(instances[0], places, **fields)
    rungs = list(dict.fromkeys(rung.name for selection in selections for rung in selection.rungs))
    keys = [instance.key for instance in instances]
    plans = dict(zip(keys, [selection.plan for selection in selections], strict=True))
    return structs.replace(work, rungs=rungs, others=keys[1:], programs=programs_of(plans))


def _when(supervisor: Supervisor) -> str:
    """What was left when a training was stopped."""
    runs_left, total = supervisor.remaining()
    return f"with {runs_left} of {plural(total, 'run')} remaining"


def plan_on_node(places: Places, request: LadderRequest) -> planning.Plan:
    """The plan on a node: with the files of a program as they were when the command that started the node queued the
    runs, which may have been edited since."""
    from lrurun.instances import documents
    from lrurun.runner import node

    files = None
    if (key := node.instance()) is not None and (ledger := opening.read(places)).exists:
        with ledger:
            recorded = documents.find(ledger, ledger.ladder(key))
            files = None if recorded is None else recorded.files
    return request.plan(files=files)


def _say_nothing_to_do(ledger: Ledger, places: Places, request: LadderRequest, plan: planning.Plan) -> None:
    """Says that every run of a request was finished before, and what these runs lack."""
    from lrurun.instances import lookup

    if (instance := lookup.find(ledger, plan)) is None:
        return
    what = "the sequential design" if request.decide else "this ladder"
    console.say(f"nothing to do: every run of {what} is finished")
    cautions.say_without_models(ledger, places, [instance])
    if any(rung.execution.probes for rung in plan.rungs) and not all(
        run.execution.probes for run in ledger.runs(instance.key)
    ):
        console.say("execution.probes: runs that were trained without it have none; --fresh trains them again")


def _unfinished(ledger: Ledger, runs: Sequence[Run]) -> list[str]:
    """A sentence on each run that is not finished, with the reason."""
    from lrurun.ledger.values import FINISHED

    sentences = []
    for run in runs:
        if run.state not in FINISHED:
            reason = (run.error or _reason(ledger, run)).splitlines()[0]
            membership = run.memberships[0]
            sentences.append(f"run {run.id} ({membership.rung}, seed {run.seed}): {reason}; see lrurun show {run.id}")
    return sentences


def _reason(ledger: Ledger, run: Run) -> str:
    """The state of an unfinished run, with the reason why its last worker exited where that is known."""
    died = [event.text for event in ledger.events(run=run.id) if event.kind == "died"]
    return f"{run.state}: {died[-1]}" if died else run.state
