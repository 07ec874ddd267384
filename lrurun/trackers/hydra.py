"""Hydra: folders of jobs, of multiruns or single ones, with `.hydra/config.yaml` and a file of metrics.

* Hydra records no metrics: `--metrics-file` names the file that the program writes into each job's folder, as
  `metrics.json`, `logs/metrics.csv`; it is a JSON object, JSON lines, or a table with or without a column for the step.
* Settings are those of `config.yaml`, which has values with their types, as OmegaConf wrote them: of `x=010` and `x=on`
  on the command line texts, of the same in a YAML file 8 and true. References such as `${lr}` stay texts.
* A job that failed leaves a folder like the others. One without the file of metrics counts as not ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

from lrurun.errors import UsageError, nearest
from lrurun.trackers import TrackedRun, documents, flat, folders, yaml
from lrurun.trackers.folders import FolderReader, Names
from lrurun.trackers.points import MetricsFile, Points

_CONFIG = Path(".hydra") / "config.yaml"


class HydraReader(FolderReader):
    """Reads the jobs in or below a folder, as `multirun` or `outputs`; or one job."""

    name: ClassVar = "hydra"
    title: ClassVar = "Hydra"
    looked_for: ClassVar = str(_CONFIG)
    reads_metrics_file: ClassVar = True

    @classmethod
    def is_run(cls, folder: Path, names: Names) -> bool:
        return ".hydra" in names and (folder / _CONFIG).is_file()

    def runs(self, curves: Collection[str] | None = ()) -> Iterator[TrackedRun]:
        root = folders.folder_of(self.source)
        if not self.source.metrics_file:
            jobs = list(self._folders(root))
            folders.check_found(self.source, self.title, self.looked_for, len(jobs), {self.source.project})
            raise UsageError(
                f"{root}: Hydra records no metrics: --metrics-file must name the file that each job writes",
                f"the first job has {', '.join(_files(jobs[0])) or 'no file'}",
            )
        found = False
        for run in super().runs(curves):
            found = found or run.state_text != _NO_FILE
            yield run
        if not found:
            names = sorted({name for folder in self._folders(root) for name in _files(folder)})
            close = nearest(self.source.metrics_file, names)
            listing = f"files: {', '.join(names[:20])}" if names else "the jobs have written no file"
            raise UsageError(
                f"--metrics-file {self.source.metrics_file}: is in no folder of a job below {root}",
                f"did you mean {close!r}? {listing}" if close else listing,
            )

    def read(self, folder: Path, id: str, curves: Collection[str] | None) -> TrackedRun:
        points = Points(curves)
        file = MetricsFile(folder / self.source.metrics_file, self.source.items)
        is_there = file.path.is_file()
        if is_there:
            file.read(points)
            for sentence in file.notes:
                self.note(sentence)
        job = _job(folder)
        items = folders.items_in(folder, self.source.items)
        return TrackedRun(
            id=id,
            project=str(job.get("name") or ""),
            name=str(job.get("override_dirname") or ""),
            settings=flat(yaml.table(folder / _CONFIG)),
            state="finished" if points.last else "running",
            state_text="" if points.last else "no metrics" if is_there else _NO_FILE,
            last=points.last,
            last_step=points.last_step,
            curves=points.curves,
            items=file.items if items is None else items,
            place=str(folder),
        )


_NO_FILE = "no metrics file"


def _job(folder: Path) -> dict[str, Any]:
    """What Hydra records of a job beside its configuration; empty where that is missing."""
    path = folder / ".hydra" / "hydra.yaml"
    table = yaml.table(path) if path.is_file() else {}
    hydra = table.get("hydra")
    job = hydra.get("job") if isinstance(hydra, dict) else None
    return job if isinstance(job, dict) else {}


def _files(folder: Path) -> list[str]:
    """The names of the files in a folder of a job that may have metrics."""
    with documents.reading(folder):
        return sorted(path.name for path in folder.iterdir() if path.suffix in (".json", ".jsonl", ".csv", ".tsv"))
