"""HiPPO's matrix and the rules of discretization, as the papers have them, in double precision."""

import numpy as np


def legs(size):
    """The matrix of HiPPO-LegS and its vector of inputs, entry by entry (Gu et al. 2020, theorem 2)."""
    a, b = np.zeros((size, size)), np.array([np.sqrt(2 * n + 1) for n in range(size)])
    for n in range(size):
        for k in range(n):
            a[n, k] = -np.sqrt(2 * n + 1) * np.sqrt(2 * k + 1)
        a[n, n] = -(n + 1)
    return a, b


def normal(size):
    """The normal part of HiPPO-LegS: it plus a matrix of rank one."""
    a, b = legs(size)
    return a + np.outer(b, b) / 2


def zoh(a, dt):
    return np.exp(dt * a), np.expm1(dt * a) / a


def euler(a, dt):
    """The ZOH rule with the factor of B to the first order in dt."""
    return np.exp(dt * a), dt * np.ones_like(a)


def bilinear(a, dt):
    return (1 + dt * a / 2) / (1 - dt * a / 2), dt / (1 - dt * a / 2)
