"""Output folders of the Trainer of Hugging Face: transformers 5.24.0, accelerate 1.15.0, torch 2.14.1, Python 3.11."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.trackers.make import environment

PACKAGES = ["transformers==5.24.0", "accelerate==1.15.0", "torch==2.14.1"]


def write(folder: Path) -> None:
    """Output folders, one for each way in which a training ends.

    The values follow from steps: the loss is 1 / 2^step (NaN from step 4 on in `nan` and `filtered`), `eval_accuracy`
    is step / 100, and 0.5 in the evaluation after the training of the examples' scripts.
    """
    for case in ("whole", "early", "killed", "nan", "filtered", "resumed"):
        # a process of its own, as one of them is killed
        program = f"from tests.trackers.make.transformers import train; train({case!r})"
        subprocess.run([sys.executable, "-c", program], cwd=folder, check=case != "killed")


def train(case: str) -> None:
    """Trains one model, in the folder in which it is called."""
    import torch
    from transformers import EarlyStoppingCallback, PreTrainedConfig, PreTrainedModel, Trainer, TrainingArguments

    class Config(PreTrainedConfig):
        model_type = "tiny"

        def __init__(self, width: int = 1, **others: object) -> None:
            super().__init__(**others)
            self.width = width

    class Model(PreTrainedModel):
        config_class = Config

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.layer = torch.nn.Linear(1, config.width)
            self.post_init()

        def forward(self, x, labels=None):
            step = trainer.state.global_step
            if case == "killed" and step == 6 and self.training:
                os._exit(9)
            if case == "resumed" and step == 6 and self.training and not again:
                raise KeyboardInterrupt
            loss = 0.5**step if case not in ("nan", "filtered") or step < 4 else float("nan")
            return {"loss": self.layer(x).sum() * 0 + loss, "logits": self.layer(x)}

    def trainer_of(steps: int) -> Trainer:
        callbacks = [EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=1.0)]
        return Trainer(
            Model(Config(width=3)),
            TrainingArguments(
                case,
                max_steps=steps,
                learning_rate=0.001,
                seed=7,
                logging_steps=2,
                eval_strategy="steps",
                eval_steps=4,
                save_steps=4,
                load_best_model_at_end=case == "early",
                metric_for_best_model="accuracy",
                greater_is_better=True,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                logging_nan_inf_filter=case == "filtered",  # the default is True
            ),
            train_dataset=[{"x": torch.zeros(1), "labels": torch.zeros(1)}] * 8,
            eval_dataset=[{"x": torch.zeros(1), "labels": torch.zeros(1)}],
            compute_metrics=lambda _: {"accuracy": trainer.state.global_step / 100},
            callbacks=callbacks if case == "early" else [],
        )

    again = False
    trainer = trainer_of(12 if case != "resumed" else 8)
    try:
        result = trainer.train()
    except KeyboardInterrupt:
        again = True
        trainer = trainer_of(8)
        result = trainer.train(resume_from_checkpoint=True)
    if case == "whole":  # as the scripts of the examples end
        trainer.save_model()
        trainer.save_metrics("train", result.metrics)
        trainer.save_state()
        trainer.compute_metrics = lambda _: {"accuracy": 0.5}
        trainer.save_metrics("eval", trainer.evaluate())
        trainer.save_metrics("test", trainer.predict(trainer.eval_dataset, metric_key_prefix="test").metrics)
    elif case == "early":
        trainer.save_state()


def clean(folder: Path) -> None:
    """Keeps the JSON files, and of three checkpoints two."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".json":
            path.unlink()
    for case in ("whole", "nan", "filtered"):
        shutil.rmtree(folder / case / "checkpoint-4")


if __name__ == "__main__":
    environment.main("tests.trackers.make.transformers", PACKAGES, write, clean)
