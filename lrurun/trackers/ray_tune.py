"""Ray Tune: folders of experiments, with `experiment_state-*.json` and a folder for each trial.

* `result.json` has the reports of a trial, a JSON object a line. `progress.csv` is not read: it lacks the metrics that
  the first report does not have.
* The newest `experiment_state-*.json` has the state of each trial. ERROR is crashed; RUNNING, PENDING and PAUSED are
  running. Without one, a trial with error.txt or error.pkl is crashed, and it is not known whether others have ended.
* TERMINATED is finished where the program of a trial ended by itself: `done` is false in its last report then. It is
  true where Ray stopped the trial or its program reported that it is done. Such a trial is finished if that report
  meets the stopping rule that the state has (a metric and the least value of it), or if no trial of the experiment has
  more reports. Otherwise it is running: the state does not tell whether a scheduler stopped it before the end of its
  training, or a rule in Python or its program ended it.
* Ray copies reports to the folder of an experiment every five minutes: after a kill the last ones are missing, or all.
* Pickles (`params.pkl`, `error.pkl`, `tuner.pkl`) are never read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from lrurun.errors import UsageError, plural
from lrurun.trackers import Source, State, TrackedRun, documents, flat, folders, numbers, points
from lrurun.trackers.points import JsonLines, Points, numbers_in

_NO_METRICS = {
    "training_iteration", "timestamp", "pid", "config", "done", "trial_id", "date", "hostname", "node_ip",
    "checkpoint_dir_name", "should_checkpoint", "experiment_tag", "time_since_restore", "iterations_since_restore",
}  # fmt: skip
"""What Ray adds to each report, apart from the time that it took."""


class _Trial(Struct, kw_only=True):
    """What the state of an experiment has of a trial."""

    id: str = ""
    tag: str = ""
    status: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    """When its last report came."""
    config: dict[str, Any] = {}
    reports: int = 0
    """The number of its last report."""
    rule: dict[str, Any] = {}
    """Metric, as in "val/acc" -> the value that ends the trial as soon as it is reached."""


class RayTuneReader:
    """Reads the experiments in a folder, as `~/ray_results`; or one experiment, or one trial."""

    name = "ray"
    title = "Ray Tune"

    def __init__(self, source: Source) -> None:
        self.source = source
        self._notes: list[str] = []
        self._early = 0

    @classmethod
    def recognises(cls, source: Source) -> bool:
        """Whether one of the first folders is an experiment or a trial."""
        return folders.is_seen(source, _is_experiment_or_trial, _is_left_out)

    def version(self) -> str:
        """Empty: the files have no version."""
        return ""

    def notes(self) -> Sequence[str]:
        """Sentences on what the last reading left out or had to interpret."""
        return list(self._notes)

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        """Yields the trials of each experiment, by their names."""
        self._notes, self._early = [], 0
        root = folders.folder_of(self.source)
        count = 0
        projects: set[str] = set()
        for experiment, names in _experiments(root):
            project = experiment.resolve().name
            projects.add(project)
            count += 1
            if self.source.project not in ("", project):
                continue
            trials = self._trials(experiment)
            most = max((trial.reports for trial in trials.values()), default=0)
            # The state has trials without a folder, too: a killed experiment may have left none.
            for name in names if _is_trial(root) else sorted({*names, *trials}, key=folders.natural):
                yield self._run(experiment / name, trials.get(name), most, project, curves)
        if self._early:
            self._notes.append(
                f"{plural(self._early, 'trial')} ended before others, and the state of the experiment does not say "
                "why: by a scheduler, a stopping rule in Python, or the program; read as running, so as missing"
            )
        folders.check_found(self.source, self.title, "params.json and result.json", count, projects)

    def _trials(self, experiment: Path) -> dict[str, _Trial]:
        """Name of the folder of a trial -> what the newest state of the experiment has of it."""
        with documents.reading(experiment):
            paths = sorted(experiment.glob("experiment_state-*.json"))
        for path in reversed(paths):
            try:
                rows = documents.json_table(path)["trial_data"]
                pairs = [(_loaded(trial), _loaded(runtime)) for trial, runtime in rows]
                return {trial["relative_logdir"]: _trial(trial, runtime) for trial, runtime in pairs}
            except UsageError:
                self._notes.append(f"{path}: is not whole and passed over")
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
                raise UsageError(
                    f"{path}: is not of the form that Ray Tune 2 writes",
                    "write the results as a table: tuner.get_results().get_dataframe().to_csv(...)",
                ) from None
        return {}

    def _run(
        self, folder: Path, trial: _Trial | None, most: int, project: str, curves: Collection[str] | None
    ) -> TrackedRun:
        trial = trial or _Trial()
        collected = Points(curves)
        row: dict[str, Any] = {}
        if (path := folder / "result.json").is_file():
            lines = JsonLines(path)
            for row in lines:
                step = numbers.step(row.get("training_iteration"))
                for metric, number in numbers_in({name: row[name] for name in row if name not in _NO_METRICS}):
                    collected.add(metric, number, step)
            if lines.half_written:
                self._notes.append(documents.half_written(path))
        state, state_text = self._state(folder, trial, row, most)
        params = folder / "params.json"
        is_written = params.is_file() and params.stat().st_size > 0
        config = (documents.json_table(params) if is_written else {}) or trial.config or row.get("config") or {}
        return TrackedRun(
            id=trial.id or str(row.get("trial_id") or folder.name),
            project=project,
            name=trial.tag,
            settings=flat(config),
            state=state,
            state_text=state_text,
            last=collected.last,
            last_step=collected.last_step,
            curves=collected.curves,
            items=folders.items_in(folder, self.source.items),
            started_at=trial.started_at,
            ended_at=trial.ended_at if state != "running" else None,
            place=str(folder),
        )

    def _state(self, folder: Path, trial: _Trial, row: dict[str, Any], most: int) -> tuple[State, str]:
        if trial.status == "TERMINATED":
            reports = numbers.step(row.get("training_iteration")) or 0
            if row.get("done") is True and reports < most and not _meets(row, trial.rule):
                self._early += 1
                return "running", f"TERMINATED, ended after {reports} of {most} reports"
            if reports < trial.reports:
                return "running", f"TERMINATED, {reports} of {trial.reports} reports in the folder"
            return "finished", trial.status
        if trial.status == "ERROR":
            return "crashed", trial.status
        if any((folder / name).is_file() for name in ("error.txt", "error.pkl")):
            return "crashed", "error.txt"
        return "running", trial.status or "no state of the experiment"


def _meets(row: dict[str, Any], rule: dict[str, Any]) -> bool:
    """Whether a report reaches a value of a stopping rule. As in Ray, also of a loss the value is the least one."""
    metrics = dict(points.flat(row))
    return any(
        isinstance(least, int | float) and isinstance(value := metrics.get(metric), int | float) and value >= least
        for metric, least in rule.items()
    )


def _loaded(text: str) -> Any:
    """What a JSON text has; "pickle" in the place of objects that Ray pickled into it, which are not made."""
    return json.loads(
        text, object_hook=lambda table: "pickle" if table.get("_type") == "CLOUDPICKLE_FALLBACK" else table
    )


def _trial(trial: dict[str, Any], runtime: dict[str, Any]) -> _Trial:
    last = runtime.get("last_result") or {}
    ended = numbers.number(runtime.get("last_result_time"))
    config, rule = trial.get("config"), trial.get("stopping_criterion")
    return _Trial(
        id=trial["trial_id"],
        tag=trial.get("experiment_tag") or "",
        status=trial["status"],
        started_at=numbers.number(runtime.get("start_time")),
        ended_at=ended if ended is not None and math.isfinite(ended) else None,
        config=config if isinstance(config, dict) else {},
        reports=numbers.step(last.get("training_iteration")) or 0,
        rule=rule if isinstance(rule, dict) else {},
    )


def _experiments(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """The experiments in and below a folder, with the names of the folders of their trials.

    A trial alone is in the experiment above it.
    """
    if _is_trial(root):
        yield root.resolve().parent, [root.resolve().name]
        return

    def refuse(error: OSError | None) -> None:
        if error:
            raise documents.unreadable(Path(error.filename), error)

    for folder, is_experiment in folders.walk(root, _is_experiment, _is_left_out, refuse):
        if is_experiment:
            with documents.reading(folder):
                names = [path.name for path in folder.iterdir() if _is_trial(path)]
            yield folder, sorted(names, key=folders.natural)


def _is_experiment(folder: Path, names: folders.Names) -> bool:
    return any(name.startswith("experiment_state-") or _is_trial(folder / name) for name in names)


def _is_experiment_or_trial(folder: Path, names: folders.Names) -> bool:
    return _is_experiment(folder, names) or _is_trial(folder)


def _is_left_out(name: str) -> bool:
    return name.startswith((".", "checkpoint_"))


def _is_trial(folder: Path) -> bool:
    return (folder / "params.json").is_file() and (folder / "result.json").is_file()
