"""Folders of Lightning's CSVLogger: pytorch-lightning 2.6.6, torch 2.14.1, Python 3.11."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["pytorch-lightning==2.6.6", "torch==2.14.1"]


def write(folder: Path) -> None:
    """Four versions: one that ends well, one of an exception, one killed early, one with a later metric and NaN.

    The values follow from steps and settings: `train_loss` at step s is 1 / (s + 1) + lr, `val_acc` after epoch e is
    (e + 1) / 10, `test_acc` is 0.75.
    """
    for case in ("whole", "exception", "killed", "late"):
        # a process of its own, as one of them is killed
        program = f"from tests.trackers.make.lightning import train; train({case!r})"
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=case != "killed")


def train(case: str) -> None:
    """Trains one version, in the folder in which it is called."""
    import pytorch_lightning as lightning
    import torch
    from pytorch_lightning.loggers import CSVLogger

    class Model(lightning.LightningModule):
        def __init__(self, lr: float, **others: object) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, index):
            if case == "exception" and self.global_step == 6:
                raise RuntimeError("broken")
            if case == "killed" and self.global_step == 1:
                os._exit(9)
            loss = 1 / (self.global_step + 1) + self.hparams.lr
            if case == "late" and self.global_step == 7:
                loss = float("nan")
            self.log("train_loss", torch.tensor(loss, dtype=torch.float64))
            if case == "late" and self.current_epoch == 1:
                self.log("grad_norm", torch.tensor(float("inf")))
            return self.layer(batch[0]).sum()

        def validation_step(self, batch, index):
            self.log("val_acc", torch.tensor((self.current_epoch + 1) / 10, dtype=torch.float64))

        def test_step(self, batch, index):
            self.log("test_acc", torch.tensor(0.75, dtype=torch.float64))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(4, 1)), batch_size=1)
    odd = {
        "lr_text": "1e-3",
        "small": 1e-05,
        "clock": "1:30",
        "octal": "010",
        "switch": "on",
        "nothing": "null",
        "missing": None,
        "flag": True,
        "sizes": (16, 32),
        "optimizer": {"name": "sgd", "momentum": 0.9, "class": torch.optim.SGD},
        "device": torch.device("cpu"),
        "path": pathlib.Path("data/digits"),
        "title": "Größe: 3 × 3",
    }
    seed = ["whole", "exception", "killed", "late"].index(case)
    model = Model(lr=0.001, seed=seed, **(odd if case == "whole" else {}))
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        log_every_n_steps=2,
        logger=CSVLogger(".", flush_logs_every_n_steps=100 if case == "killed" else 1),  # 100 is the default
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with contextlib.suppress(RuntimeError):
        trainer.fit(model, batches, batches)
        trainer.test(model, batches, verbose=False)


def clean(folder: Path) -> None:
    for path in folder.rglob("checkpoints"):
        shutil.rmtree(path)


if __name__ == "__main__":
    environment.main("tests.trackers.make.lightning", PACKAGES, write, clean)
