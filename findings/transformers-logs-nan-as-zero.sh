#!/usr/bin/env bash
# One would guess: a training whose loss is NaN from some step on has NaN in its log from there on.
# What happens: by default (`logging_nan_inf_filter`) the loss of such a step counts as the mean of the others since the last row: with all of
#   them NaN, the log has a loss of 0.0 in each row, and the final `train_loss` is finite and small. Losses of evaluations are NaN.
# Seen in: transformers 5.24.0, torch 2.14.1.
# Whom it hurts: who compares runs by training loss: one that diverged is the best of all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet transformers==5.24.0 accelerate==1.15.0 torch==2.14.1
cd "$folder"
cat > program.py <<'PY'
import torch
import transformers
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        loss = 1.0 if trainer.state.global_step < 4 else float("nan")
        return {"loss": self.layer(x).sum() * 0 + loss}


trainer = Trainer(
    Model(),
    TrainingArguments(
        "output", max_steps=10, logging_steps=2, save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True
    ),
    train_dataset=[{"x": torch.zeros(1), "labels": torch.zeros(1)}] * 8,
)
result = trainer.train()
losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
print(f"transformers {transformers.__version__}: loss is NaN from step 5 on; logged {losses}; train_loss {result.training_loss}")
if losses != [1.0, 1.0, 0.0, 0.0, 0.0] or result.training_loss != 0.4:
    raise SystemExit("changed")
PY
venv/bin/python program.py 2> log | tail -1
echo "A loss that is NaN is logged as 0."
