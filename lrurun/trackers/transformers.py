"""Hugging Face transformers: output folders of its Trainer, with `trainer_state.json` in them or in `checkpoint-N`.

* Of the states of a run, that of the most steps counts; of equal ones that of the output folder, which has the times of
  the whole training. A state that is half written, as that of a run that was killed then, is passed over.
* By default (`logging_nan_inf_filter`) the loss of a step that is NaN or infinite is logged as the mean of the others
  since the last row, which is 0 if there are none: a loss of exactly 0 is noted. Losses of evaluations are as they are.
* `all_results.json` has what `save_metrics` was called with: of it, the metrics that the log does not have, as those
  of a test set.
* A run is finished if its last step is the last one planned, or if it was stopped by itself, as by early stopping.
  Of others it is not known whether they still run.
* Its arguments, with the seed, are in a pickle (`training_args.bin`), which is never read. Settings are those that the
  state has (numbers of steps, batch size, parameters of a search), `args.json` and `config.json` where they are there
  (the latter below `config.`), the path of the folder as `folder`, and without arguments what the names of folders
  say.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from lrurun.errors import LrurunError, UsageError
from lrurun.trackers import State, TrackedRun, Value, documents, flat, folders, numbers
from lrurun.trackers.folders import FolderReader, Names
from lrurun.trackers.points import Points, numbers_in

STATE = "trainer_state.json"
_SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size")


class TransformersReader(FolderReader):
    """Reads the output folders in or below a folder; or one checkpoint."""

    name: ClassVar = "transformers"
    title: ClassVar = "Hugging Face transformers"
    looked_for: ClassVar = f"{STATE}, or a folder checkpoint-N with it"

    @classmethod
    def is_run(cls, folder: Path, names: Names) -> bool:
        return STATE in names or any((folder / name / STATE).is_file() for name in _checkpoints(names))

    @classmethod
    def is_left_out(cls, name: str) -> bool:
        return super().is_left_out(name) or bool(_checkpoints([name]))

    def read(self, folder: Path, id: str, curves: Collection[str] | None) -> TrackedRun:
        with documents.reading(folder):
            names = [path.name for path in folder.iterdir()]
        checkpoints = [folder / name for name in reversed(_checkpoints(names))]
        place, state = self._newest(folder, checkpoints)
        collected = Points(curves)
        history = state.get("log_history")
        if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
            raise UsageError(f"{place}: has no list of rows log_history", "name a folder of transformers' Trainer")
        for row in history:
            step = numbers.step(row.get("step"))
            for metric, number in numbers_in(row):
                if metric != "step":
                    collected.add(metric, number, step)
        if collected.last.get("loss") == 0:
            self.note(f"{place}: the last loss is exactly 0, as Trainer logs one that is NaN or infinite")
        self._add_results(folder, collected)
        end, state_text = _end(state, history)
        return TrackedRun(
            id=id,
            settings=_settings([folder, *checkpoints], state, id, folders.relative(folder, self.source.path)),
            state=end,
            state_text=state_text,
            last=collected.last,
            last_step=collected.last_step,
            curves=collected.curves,
            items=folders.items_in(folder, self.source.items),
            place=str(folder),
        )

    def _newest(self, folder: Path, checkpoints: list[Path]) -> tuple[Path, dict[str, Any]]:
        """The file of the newest state that can be read, and what is in it. Checkpoints begin with the newest."""
        read: list[tuple[int, Path, dict[str, Any]]] = []
        refused: LrurunError | None = None
        for path in (place / STATE for place in (folder, *checkpoints)):
            if not path.is_file():
                continue
            try:
                state = documents.json_table(path)
            except UsageError as error:
                refused = error
                self.note(f"{path}: is not whole and passed over")
                continue
            step = numbers.step(state.get("global_step"))
            if step is None:
                refused = UsageError(f"{path}: has no global_step", "repair the file, or move its folder away")
                self.note(f"{path}: is not whole and passed over")
                continue
            read.append((step, path, state))
            if path.parent != folder:  # the newest of the checkpoints
                break
        if not read:
            raise refused or UsageError(f"{folder}: has no {STATE}", "name an output folder of the Trainer")
        _, path, state = max(read, key=lambda found: found[0])  # of equal ones the first
        return path, state

    def _add_results(self, folder: Path, collected: Points) -> None:
        path = folder / "all_results.json"
        if not path.is_file():
            return
        logged = dict(collected.last)
        for metric, number in numbers_in(documents.json_table(path)):
            if metric not in logged:
                collected.add(metric, number, None)
            elif number != logged[metric] and metric.startswith("eval_") and not metric.endswith(_SPEEDS):
                self.note(f"{path}: {metric} is {number:g}, and {logged[metric]:g} at the end of the log, which counts")


_SPEEDS = ("_runtime", "_per_second")


def _checkpoints(names: Names) -> list[str]:
    """The names of checkpoints, by their steps."""
    found = (re.fullmatch(r"checkpoint-(\d+)", name) for name in names)
    return [match[0] for match in sorted(filter(None, found), key=lambda match: int(match[1]))]


def _end(state: dict[str, Any], history: list[dict[str, Any]]) -> tuple[State, str]:
    """How the run ended, and how far it came."""
    step, planned = state["global_step"], numbers.step(state.get("max_steps")) or 0
    progress = f"step {step} of {planned}"
    control: Any = state
    for name in ("stateful_callbacks", "TrainerControl", "args", "should_training_stop"):
        control = control.get(name) if isinstance(control, dict) else None
    if step >= planned:
        return "finished", progress
    if control is True or (history and "train_runtime" in history[-1]):
        return "finished", f"{progress}, stopped early"
    return "running", progress


def _settings(places: list[Path], state: dict[str, Any], id: str, below: PurePosixPath) -> dict[str, Value]:
    """The settings in a state, and in files of the first of these folders that has them; without arguments, those in
    the names of folders."""
    settings: dict[str, Value] = {"folder": id}
    settings |= flat({name: state[name] for name in _SETTINGS if name in state})
    given = flat(state["trial_params"]) if isinstance(state.get("trial_params"), dict) else {}
    if not given and not any((place / "args.json").is_file() for place in places):
        given = folders.settings_in(below)
    settings |= given
    for name, prefix in (("config.json", "config."), ("args.json", "")):
        for place in places:
            if (path := place / name).is_file():
                settings |= flat(documents.json_table(path), prefix)
                break
    return settings
