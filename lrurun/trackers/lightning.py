"""Lightning: folders of its CSVLogger, `NAME/version_N` with `metrics.csv` and `hparams.yaml`.

* A row of metrics.csv has the metrics of one kind, as of training or of validation, at a step; other cells are empty.
* Steps count from 0 in training; `trainer.test` logs at the number of all steps, one after the last.
* No file has the end of a run: each is finished, except one without metrics, which was killed before the first were
  written (every 100 steps by default).
* hparams.yaml is written by PyYAML, or by OmegaConf in such a way that PyYAML reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from lrurun.trackers import TrackedRun, flat, folders, yaml
from lrurun.trackers.folders import FolderReader, Names
from lrurun.trackers.points import MetricsFile, Points


class LightningReader(FolderReader):
    """Reads the versions in a folder, as of `lightning_logs`, or below it; or one version."""

    name: ClassVar = "lightning"
    title: ClassVar = "Lightning"
    looked_for: ClassVar = "metrics.csv and hparams.yaml, or the name version_N"

    @classmethod
    def is_run(cls, folder: Path, names: Names) -> bool:
        is_version = re.fullmatch(r"version_\d+", folder.resolve().name) is not None
        if "metrics.csv" in names:
            return is_version or "hparams.yaml" in names
        # Its TensorBoardLogger writes such folders, too.
        return is_version and "hparams.yaml" in names and not any("tfevents" in name for name in names)

    def read(self, folder: Path, id: str, curves: Collection[str] | None) -> TrackedRun:
        points = Points(curves)
        if (path := folder / "metrics.csv").is_file():
            file = MetricsFile(path)
            file.read(points, ends_with_line=True)
            for sentence in file.notes:
                self.note(sentence)
        hparams = folder / "hparams.yaml"
        settings = flat(yaml.table(hparams)) if hparams.is_file() else {}
        return TrackedRun(
            id=id,
            project=folder.resolve().parent.name,
            settings=settings or folders.settings_in(folders.relative(folder, self.source.path)),
            state="finished" if points.last else "running",
            state_text="" if points.last else "no metrics",
            last=points.last,
            last_step=points.last_step,
            curves=points.curves,
            items=folders.items_in(folder, self.source.items),
            place=str(folder),
        )
