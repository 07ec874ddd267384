"""The interface of training scripts: `this_run()` has settings, seed and a folder, and takes metrics.

    import lrurun

    run = lrurun.this_run(lr=0.001, norm="batch")
    run.log(step, {"train/loss": loss, "val/accuracy": accuracy, "test/accuracy": right.mean()})
    run.log_items("test/accuracy", right)

This file is all that a program imports: it needs Python 3.8 or later, and no package.
"""

from __future__ import annotations

import json
import operator
import os
import re
import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping

__all__ = ["Run", "Settings", "this_run"]

METRIC_NAME = re.compile(r"(?!.{101})[A-Za-z][\w.@-]*(?:/\.*[\w@-][\w.@-]*)*", re.ASCII)
"""A pattern of the whole name of a metric. Other programs take names for paths: no part is empty, '.' or '..'."""
NAME_RULE = (
    "names have a letter, then letters, digits, '/', '.', '_', '-' and '@', at most 100, "
    "and on each side of a '/' more than dots"
)

MOST_ITEMS = 1_000_000
"""The most test items of a score."""


class Settings(Dict[str, Any]):
    """Settings by name, as items and as attributes: `settings["lr"]`, `settings.lr`."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        super().__init__({name: Settings(part) if isinstance(part, dict) else part for name, part in table.items()})

    def __getattribute__(self, name: str) -> Any:
        # settings come before the methods of a dict, such as `items`
        return self[name] if dict.__contains__(self, name) else super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no setting {name!r}; there are: {', '.join(self) or 'none'}")


class Run:
    """One execution of this program.

    Attributes:
        settings: the settings: `run.settings.lr`.
        seed: a whole number, for all that is random.
        folder: a folder that stays the same when the run is interrupted and started again, for checkpoints.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        seed: int,
        folder: str,
        metrics: str | None = None,
        process: int | None = None,
    ) -> None:
        self.settings, self.seed, self.folder = Settings(settings), seed, folder
        self._path = metrics
        self._metrics = None if metrics is None else os.open(metrics, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._process = os.getpid() if process is None else process
        self._stops = self._handles = False
        self._step: int | None = None
        """The step of the last `log`."""
        self._handler_before: Any = None

    def __reduce__(self) -> Any:
        """Opens the file again in another process, which is still not the one that SIGTERM reaches."""
        return Run, (dict(self.settings), self.seed, self.folder, self._path, self._process)

    @property
    def should_stop(self) -> bool:
        """Whether the program should save and exit, because it is interrupted.

        From the first look on, SIGTERM does not end this process. It does end processes that this one forks, and
        workers of a pool: there, this does not change.
        """
        if not self._handles and os.getpid() == self._process and not _is_pool_worker():
            try:
                self._handler_before = signal.signal(signal.SIGTERM, self._stop)
            except ValueError:  # not in the main thread, which may look later
                return self._stops
            self._handles = True
            self._keep_from_children()
        return self._stops

    def _keep_from_children(self) -> None:
        """Has every fork restore the handler that was there before ours.

        SIGTERM waits during a fork: a child that is terminated at once would otherwise lose it.
        """
        here = threading.local()

        def hold() -> None:
            here.is_held = signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

        def release() -> None:
            if here.is_held:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

        def restore() -> None:
            if signal.getsignal(signal.SIGTERM) == self._stop:
                signal.signal(signal.SIGTERM, self._handler_before or signal.SIG_DFL)
            release()

        os.register_at_fork(before=hold, after_in_parent=release, after_in_child=restore)

    def _stop(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:  # a later handler of the program calls this one, in a child too
            if callable(self._handler_before):
                self._handler_before(number, frame)
            else:
                signal.signal(number, self._handler_before or signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._stops = True
        try:
            self._write({"interrupted": True})
        except OSError:  # a full disk; this may be anywhere in the program
            pass

    def _write(self, row: Mapping[str, Any]) -> None:
        """Appends a line, at once and whole: a signal may arrive at any moment, and other processes may write too."""
        line = (json.dumps(row) + "\n").encode()
        if self._metrics is not None and os.write(self._metrics, line) < len(line):
            raise OSError("the metrics could not be written: is the disk full?")

    def log(self, step: int, *tables: Mapping[str, Any], **metrics: Any) -> None:
        """Records metrics at a step, a whole number that does not decrease: `log(10, {"val/accuracy": 0.9}, loss=0.3)`.

        Values are numbers, or arrays of NumPy, PyTorch or JAX with a single one. None is a value that was not measured,
        and is left out.

        Raises:
            TypeError, ValueError: the step is no whole number from 0 on, a value is no number, or a name is not valid.
        """
        if isinstance(step, Mapping):
            raise TypeError('step: expected a whole number, found metrics: log(3, {"val/accuracy": 0.9})')
        if not _is_step(step):
            raise ValueError(f"step: expected a whole number from 0 on, found {step!r}")
        row: Dict[str, float] = {}
        for table in (*tables, metrics):
            if not isinstance(table, Mapping):
                raise TypeError(f'expected metrics by name, as in log(3, {{"val/accuracy": 0.9}}), found {table!r}')
            for name, value in table.items():
                if not isinstance(name, str):
                    raise TypeError(f"expected the name of a metric, found {name!r}")
                if name in row or name == "step":
                    raise TypeError(f"{name}: is there twice")
                if value is not None:
                    row[name] = _number(name, value)
        self._step = int(step)
        if self._metrics is not None:
            self._write({"step": int(step), **row})  # lrurun refuses a wrong name, and does not try again
            return
        for name in row:
            if not METRIC_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a metric: {NAME_RULE}")
        text = ", ".join(f"{name} {value:.6g}" for name, value in row.items())
        print(f"step {int(step)}: {text}", flush=True)

    def log_items(
        self, name: str, values: Any, step: int | None = None, weights: Any = None, groups: Any = None, ids: Any = None
    ) -> None:
        """Records the result of each test item, of which a test score is the mean: `log_items("test/accuracy", right)`.

        With them, verdicts hold for other test items of the same kind. Items have the same order in every run. All
        columns are sequences, or arrays of NumPy, PyTorch or JAX with one dimension.

        Args:
            name: the score, as in "test/accuracy".
            values: a number for each test item, or whether it is right.
            step: the step at which the score is logged, by default the step of the last `log`.
            weights: the weight of each item in the score, if they differ.
            groups: the name or number of the group of each item, such as its speaker or document.
            ids: the name or number of each item, by which lrurun sees that their order is the same in all runs.

        Raises:
            TypeError, ValueError: the name is not of a test score, the step is missing, or a column is not valid.
        """
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a test score, as in 'test/accuracy', found {name!r}")
        if not (METRIC_NAME.fullmatch(name) and name.startswith("test")):
            raise ValueError(f"expected the name of a test score, as in 'test/accuracy', found {name!r}")
        step = self._step if step is None else step
        if step is None:
            raise ValueError(f"step: nothing was logged yet; name it, as in log_items({name!r}, values, step=3)")
        if not _is_step(step):
            raise ValueError(f"step: expected a whole number from 0 on, found {step!r}")
        row: Dict[str, Any] = {"step": int(step), "items": name, "values": _column("values", values, _value)}
        for label, column, convert in (
            ("weights", weights, _weight),
            ("groups", groups, _label),
            ("ids", ids, _label),
        ):
            if column is not None:
                row[label] = _column(label, column, convert)
                if len(row[label]) != len(row["values"]):
                    raise ValueError(f"{label}: has {len(row[label])} entries, for {len(row['values'])} values")
        if weights is not None and not sum(row["weights"]) > 0:
            raise ValueError("weights: are all 0")
        if ids is not None and len(set(row["ids"])) < len(row["ids"]):
            raise ValueError("ids: the same one is there twice")
        if self._metrics is not None:
            self._write(row)
            return
        shares = row.get("weights") or [1] * len(row["values"])
        mean = sum(map(operator.mul, row["values"], shares)) / sum(shares)
        print(f"step {int(step)}: {len(shares)} items of {name}, mean {mean:.6g}", flush=True)


def _column(label: str, column: Any, convert: Callable[[str, Any], Any]) -> List[Any]:
    """The entries of a column, one for each test item."""
    shape = getattr(column, "shape", (0,))
    if isinstance(column, (str, bytes, Mapping, set, frozenset)) or not hasattr(column, "__iter__") or len(shape) != 1:
        actual = f"shape {tuple(shape)}" if len(shape) != 1 else repr(column)[:80]
        raise TypeError(f"{label}: expected a sequence with one entry for each test item, found {actual}")
    entries = column.tolist() if hasattr(column, "tolist") else list(column)
    if not 0 < len(entries) <= MOST_ITEMS:
        raise ValueError(f"{label}: expected 1 to {MOST_ITEMS:,} entries, found {len(entries):,}")
    if any(isinstance(entry, (list, tuple)) or getattr(entry, "shape", ()) != () for entry in entries):
        raise TypeError(f"{label}: expected one entry for each test item, found sequences: join those of all batches")
    return [convert(f"{label}[{index}]", entry) for index, entry in enumerate(entries)]


def _value(name: str, value: Any) -> float:
    number = float(value) if isinstance(value, bool) else _number(name, value)
    return int(number) if number in (0.0, 1.0) else number  # as 0 and 1, in fewer bytes


def _weight(name: str, value: Any) -> float:
    number = _value(name, value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{name}: expected a number from 0 on, found {number}")
    return number


def _label(name: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, (str, int)):
        return value
    raise TypeError(f"{name}: expected a name or a whole number, found {value!r}")


def _is_step(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and int(value) == value and value >= 0
    except (TypeError, ValueError, OverflowError):
        return False


def _number(name: str, value: Any) -> float:
    if not isinstance(value, (bool, str)):
        try:
            return float(value.item() if hasattr(value, "item") else value)  # PyTorch warns of float(loss)
        except OverflowError:  # a whole number beyond the largest float
            return float("inf") if value > 0 else float("-inf")
        except (TypeError, ValueError, RuntimeError):  # the last one of an array of PyTorch with several values
            pass
    raise TypeError(f"{name}: expected a number, found {value!r}")


def _is_pool_worker() -> bool:
    """Whether this is a worker of a pool or a data loader, which SIGTERM ends, however it was started."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and bool(processes.current_process().daemon)


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{name: _merged(below.get(name), value) for name, value in above.items()}}
    return above


_runs: list[Run] = []


def this_run(**settings: Any) -> Run:
    """The run that this process executes.

    Outside of lrurun, as when the script is started by hand, the run has these settings, seed 0 and the working
    directory as its folder, and prints its metrics. Within lrurun the recipe's settings come before these.

    Raises:
        TypeError: `seed` among the settings, which is `run.seed`.
    """
    if "seed" in settings:
        raise TypeError("seed: is no setting, use run.seed")
    if not _runs:
        path = os.environ.get("LRURUN_CONFIG")
        if path is None:
            _runs.append(Run(settings, 0, os.getcwd()))
        else:
            with open(path, encoding="utf-8") as file:
                table = json.load(file)
            seed = table.pop("seed")
            _runs.append(Run(_merged(settings, table), seed, os.environ["LRURUN_FOLDER"], os.environ["LRURUN_METRICS"]))
    return _runs[0]
