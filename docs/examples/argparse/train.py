"""Trains a network on handwritten digits, and prints its accuracy."""

import argparse

import lrurun
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--hidden", type=int, default=16)
parser.add_argument("--activation", default="identity")
parser.add_argument("--scale", action="store_true")
parser.add_argument("--momentum", type=float, default=0.0)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--seed", type=int, default=0)
run = lrurun.this_run()
parser.set_defaults(seed=run.seed, **run.settings)
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(images / 16, labels, test_size=400, random_state=0)
train_x, val_x, train_y, val_y = train_test_split(train_x, train_y, test_size=400, random_state=0)
if args.scale:
    scaler = StandardScaler().fit(train_x)
    train_x, val_x, test_x = map(scaler.transform, (train_x, val_x, test_x))

model = MLPClassifier(
    hidden_layer_sizes=(args.hidden,),
    activation=args.activation,
    solver="sgd",
    batch_size=50,
    learning_rate_init=args.lr,
    momentum=args.momentum,
    random_state=args.seed,
)
for epoch in range(1, args.epochs + 1):
    model.partial_fit(train_x, train_y, classes=range(10))
    print(f"epoch {epoch}: loss {model.loss_:.3f}")
    scores = {"val/accuracy": model.score(val_x, val_y), "test/accuracy": model.score(test_x, test_y)}
    run.log(epoch, **{"train/loss": model.loss_}, **scores)
    run.log_items("test/accuracy", model.predict(test_x) == test_y)
print(f"accuracy: {model.score(test_x, test_y):.3f}")
