"""Event files by tensorboard 2.21.0 and tensorboardX 2.6.5, with protobuf 6.33.5 and NumPy 2.3.5; Python 3.11.

TensorFlow is not needed: tensorboard's own writer makes scalars as tensors, and its hparams plugin the messages of
Keras.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["tensorboard==2.21.0", "tensorboardX==2.6.5", "protobuf==6.33.5", "numpy==2.3.5", "setuptools<81"]
TIME = 1_700_000_000.0
"""The time of the first event, where a writer takes it."""


def write(folder: Path) -> None:
    """A folder with runs in the forms of both packages, and one for each way in which a run's files are odd."""
    os.chdir(folder)
    _values()
    _two_writers()
    _again()
    _hparams()
    _split()
    _names()
    _lightning()
    _cut()
    for file in Path().rglob("events.out*"):  # the name of the machine, its process and a count
        number = len(list(file.parent.glob(f"{file.name.split('.')[3]}*")))
        target = file.with_name(".".join(["events.out.tfevents", file.name.split(".")[3], "host", str(number)]))
        while target.exists():
            number += 1
            target = file.with_name(".".join([*target.name.split(".")[:-1], str(number)]))
        file.rename(target)


def _writer(folder: str, **options: object) -> object:
    from tensorboardX import SummaryWriter

    while time.time() % 1 > 0.5:  # two writers of one second share a file
        time.sleep(0.05)
    return SummaryWriter(folder, **options)


def _values() -> None:
    """The same numbers as `simple_value` and as tensors."""
    from tensorboard.summary import Writer

    writer = _writer("values/simple")
    for step, value in enumerate((0.5, float("nan"), float("inf"), 1e39, 16777217.0, 0.1)):
        writer.add_scalar("loss", value, step, walltime=TIME + step)
    writer.close()
    tensors = Writer("values/tensors")
    for step, value in enumerate((0.5, float("nan"), float("inf"), 1e39, 16777217.0, 0.1)):
        tensors.add_scalar("loss", value, step, wall_time=TIME + step)
    tensors.close()


def _two_writers() -> None:
    """101 points, and 41 of a second process that began again from step 60: 142."""
    for start, offset in ((0, 0.0), (60, 1000.0)):
        writer = _writer("two-writers")
        for step in range(start, 101):
            writer.add_scalar("loss", offset + step, step, walltime=TIME + offset + step)
        writer.close()
        time.sleep(1)


def _again() -> None:
    """As before, but the second writer says from which step on earlier points are void; it ends earlier."""
    for start, end, offset, options in ((0, 101, 0.0, {}), (60, 80, 1000.0, {"purge_step": 60})):
        writer = _writer("again", **options)
        for step in range(start, end):
            writer.add_scalar("loss", offset + step, step, walltime=TIME + offset + step)
        writer.close()
        time.sleep(1)


def _hparams() -> None:
    """One session in a run's folder, as PyTorch's users have it; two by one writer; Keras's, without an end."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = _writer("hparams/one")
    for step in range(3):
        writer.add_scalar("loss", 1 / (step + 1), step, walltime=TIME + step)
    writer.add_hparams({"lr": 0.1, "depth": 4, "norm": "layer", "bias": True}, {"hparam/accuracy": 0.75})
    writer.close()
    writer = _writer("hparams/two")
    for seed in range(2):
        writer.add_hparams({"seed": seed, "lr": 0.5}, {"hparam/accuracy": 0.5 + seed / 4}, name=f"session-{seed}")
    writer.close()
    events = EventFileWriter("hparams/keras")
    events.add_event(Event(wall_time=TIME, step=0, summary=hparams_pb({"units": 16, "dropout": 0.25, "act": "relu"})))
    events.flush()
    events.close()


def _split() -> None:
    """The folders of Keras, by the writer of scalars as tensors; curves of tensorboardX's `add_scalars`."""
    from tensorboard.summary import Writer

    for split, offset in (("train", 0.0), ("validation", 10.0)):
        writer = Writer(f"split/keras/{split}")
        for step in range(3):
            writer.add_scalar("epoch_loss", offset + step, step, wall_time=TIME + step)
        writer.close()
    writer = _writer("split/scalars")
    writer.add_scalar("alone", 1.0, 1, walltime=TIME)
    for step in range(2):
        writer.add_scalars("loss", {"a": step, "b": step + 10}, step, walltime=TIME + step)
    writer.close()


def _names() -> None:
    """Names that tensorboardX changes."""
    writer = _writer("names")
    writer.add_scalar("val/acc@top 5", 0.5, 1, walltime=TIME)
    writer.add_scalar("loss (x)", 0.25, 1, walltime=TIME)
    writer.close()


def _lightning() -> None:
    """Events with the settings that Lightning writes beside them: `yaml.dump`, and the plugin's with slashes."""
    writer = _writer("lightning/version_0")
    writer.add_scalar("val_acc", 0.5, 10, walltime=TIME)
    writer.close()
    Path("lightning/version_0/hparams.yaml").write_text(
        "lr: 0.001\nmodel:\n  depth: 4\n  sizes:\n  - 1\n  - 2\n"
        "options: !!python/object:argparse.Namespace\n  seed: 3\n"
    )


def _cut() -> None:
    """The file of a killed writer, which ends within its last record; and one with a changed byte in the middle."""
    for name in ("cut", "damaged"):
        writer = _writer(name)
        for step in range(5):
            writer.add_scalar("loss", step + 0.5, step, walltime=TIME + step)
        writer.close()
        [file] = Path(name).glob("events*")
        content = bytearray(file.read_bytes())
        if name == "cut":
            file.write_bytes(content[:-5])
        else:
            content[-60] ^= 0x40
            file.write_bytes(content)


if __name__ == "__main__":
    environment.main("tests.trackers.make.tensorboard", PACKAGES, write)
