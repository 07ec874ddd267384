"""A network on handwritten digits in PyTorch: normalisation, residual connections and dropout are settings."""

from pathlib import Path

import lrurun
import torch
from sklearn.datasets import load_digits
from torch import nn

run = lrurun.this_run(lr=0.001, width=64, depth=6, norm=False, residual=False, dropout=0.0, epochs=20)
settings = run.settings
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(run.seed)

images, labels = load_digits(return_X_y=True)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))  # the same split for every seed
images = torch.tensor(images, dtype=torch.float32)[order].to(device) / 16
labels = torch.tensor(labels, dtype=torch.int64)[order].to(device)
train, validation, test = slice(0, 1000), slice(1000, 1400), slice(1400, None)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(settings.width) if settings.norm else nn.Identity()
        self.linear = nn.Linear(settings.width, settings.width)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x):
        y = self.dropout(torch.relu(self.linear(self.norm(x))))
        return x + y if settings.residual else y


blocks = [Block() for _ in range(settings.depth)]
model = nn.Sequential(nn.Linear(64, settings.width), *blocks, nn.Linear(settings.width, 10)).to(device)
optimiser = torch.optim.AdamW(model.parameters(), lr=settings.lr)


@torch.no_grad()
def right(part):
    model.eval()
    return (model(images[part]).argmax(1) == labels[part]).float()


saved, first = Path(run.folder) / "state.pt", 1
if saved.exists():  # the run was interrupted: continue from its last checkpoint
    state = torch.load(saved, map_location=device)
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    first = state["epoch"] + 1

for epoch in range(first, settings.epochs + 1):
    torch.manual_seed(1000 * run.seed + epoch)  # batches and dropout depend on seed and epoch alone
    model.train()
    for batch in torch.randperm(1000).to(device).split(50):
        loss = nn.functional.cross_entropy(model(images[train][batch]), labels[train][batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    tested = right(test)
    scores = {"val/accuracy": right(validation).mean(), "test/accuracy": tested.mean()}
    run.log(epoch, scores, **{"train/loss": loss})
    run.log_items("test/accuracy", tested)
    if run.should_stop or epoch % 5 == 0:
        state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch}
        torch.save(state, saved.with_suffix(".new"))
        saved.with_suffix(".new").replace(saved)  # whole or not at all
    if run.should_stop:
        break
