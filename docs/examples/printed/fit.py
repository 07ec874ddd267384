"""Fits noisy samples of a sine with features of several frequencies: fit.py FREQUENCIES MOMENTUM SEED"""

import sys

import numpy as np

frequencies, momentum, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(seed)


def samples(count):
    x = random.uniform(-3, 3, count)
    features = [f(k * x) for k in range(1, frequencies + 1) for f in (np.sin, np.cos)]
    return np.stack(features, axis=1), np.sin(2 * x + 1) + random.normal(0, 0.1, count)


train, validation, test = samples(100), samples(500), samples(500)
weights, velocity = np.zeros(2 * frequencies), 0.0


def error(part):
    return np.mean((part[0] @ weights - part[1]) ** 2)


for epoch in range(1, 41):
    velocity = momentum * velocity + train[0].T @ (train[0] @ weights - train[1]) / 100
    weights = weights - 0.1 * velocity
    print(f"epoch {epoch}: loss {error(train):.4f}, val_mse={error(validation):.4f}, test_mse={error(test):.4f}")
