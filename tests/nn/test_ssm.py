"""All state space layers: outputs against loops in double precision, parameters, refusals, and a ladder of them."""

import jax
import numpy as np
import pytest

from lrurun.config.recurrences import KINDS
from lrurun.config.recurrences.lru import LRURecurrence
from lrurun.config.recurrences.s4 import S4Recurrence
from lrurun.config.recurrences.s4d import S4DRecurrence
from lrurun.config.recurrences.s5 import S5Recurrence
from lrurun.config.schema import ModelConfig
from lrurun.data.task import Spec
from lrurun.decoding import convert
from lrurun.errors import UsageError
from lrurun.nn import recurrences
from lrurun.nn.network import Model
from tests.harness.loops import double
from tests.harness.state_spaces import bilinear, euler, legs, normal, zoh


def outputs(lam, b, c, back, d, u, lengths, excluded):
    """Of each sequence by itself, without its padding: a loop over time, complex128; zero in the padding.

    `lam`, `b` (..., H) and the readouts `c`, `back` (H, ...) as matrices, `lam` as a matrix or its diagonal; `excluded`
    is whether the current input is left out looking back.
    """
    move = np.diag(lam) if lam.ndim == 1 else lam
    y = np.zeros(u.shape)
    for i, length in enumerate(lengths):
        y[:length, i] = d * u[:length, i]
        x = np.zeros(len(lam), complex)
        for k in range(length):
            x = move @ x + b @ u[k, i]
            y[k, i] += (c @ x).real
        x = np.zeros(len(lam), complex)
        for k in reversed(range(length if back is not None else 0)):
            before, x = x, move @ x + b @ u[k, i]
            y[k, i] += (back @ (before if excluded else x)).real
    return y


RULES = {"zoh": zoh, "bilinear": bilinear, "euler": euler}
SSM = {
    "s5": S5Recurrence(blocks=2),
    "s5-bilinear": S5Recurrence(c_init="complex", discretization="bilinear", dt_max=0.5),
    "s5-clipped": S5Recurrence(conj_sym=False, clip_eigs=True),
    "s4d": S4DRecurrence(init="legs"),
    "s4d-shared": S4DRecurrence(init="inv", n_ssm=2, discretization="bilinear"),
    "s4d-fixed": S4DRecurrence(init="legs", train_b=False, dt_max=0.5),
    "s4d-delta-b": S4DRecurrence(init="inv", discretization="euler", dt_max=0.5),
    "s4d-two-deltas": S4DRecurrence(init="legs", discretization="euler", shared_dt=False),
    "s4d-two-deltas-zoh": S4DRecurrence(shared_dt=False, dt_max=0.5),
    "s4": S4Recurrence(dt_max=0.5),
    "s4-shared": S4Recurrence(n_ssm=2),
}
WIDTH, STATE = 6, 8


def whole(p, h):
    """The bilinear matrices (N, N) and (N,) of channel h of an S4, of all N numbers, conjugates too, by an inverse."""
    one, dt = h % len(p["A_im"]), np.exp(p["log_dt"][h])
    half = -np.exp(p["A_re_log"]) + 1j * p["A_im"], p["P_re"] + 1j * p["P_im"], p["B_re"] + 1j * p["B_im"]
    lam, low, b = (np.concatenate([x[one], x[one].conj()]) for x in half)
    a, eye = np.diag(lam) - np.outer(low, low.conj()), np.eye(len(lam))
    inverse = np.linalg.inv(eye - dt / 2 * a)
    return inverse @ (eye + dt / 2 * a), inverse @ (dt * b)


def reference(settings, p, u, lengths, bidirectional):
    """Outputs from the parameters by the equations of the papers."""
    if isinstance(settings, S4Recurrence):
        y = np.zeros(u.shape)
        for h in range(WIDTH):
            a, b = whole(p, h)
            of, ways = slice(h, h + 1), ("", "_back") if bidirectional else ("",)
            c = [np.hstack([m[of], m[of].conj()]) for m in (p[f"C_re{way}"] + 1j * p[f"C_im{way}"] for way in ways)]
            y[..., of] = outputs(a, b[:, None], *[*c, None][:2], p["D"][of], u[..., of], lengths, True)
        return y
    rule = RULES[settings.discretization]
    names = [("C_re", "C_im"), ("C_re_back", "C_im_back")][: 1 + bidirectional]
    c = [p[re] + 1j * p[im] for re, im in names] + [None]
    if isinstance(settings, S5Recurrence):
        re = np.minimum(p["lam_re"], -1e-4) if settings.clip_eigs else p["lam_re"]
        lam, factor = rule(re + 1j * p["lam_im"], np.exp(p["log_dt"]))
        c = [m if m is None else m * (2 if settings.conj_sym else 1) for m in c]
        b = factor[:, None] * (p["B_re"] + 1j * p["B_im"])
        return outputs(lam, b, c[0], c[1], p["D"], u, lengths, False)
    y = np.zeros(u.shape)
    for h in range(WIDTH):
        one = h % len(p["A_im"])
        a = -np.exp(p["A_re_log"][one]) + 1j * p["A_im"][one]
        lam, factor = rule(a, np.exp(p["log_dt"][h]))
        if not settings.shared_dt:
            _, factor = rule(a, np.exp(p["log_dt_b"][h]))
        if settings.train_b:
            b = p["B_re"][one] + 1j * p["B_im"][one]
        else:
            _, vectors = np.linalg.eigh(-1j * (normal(STATE) + np.eye(STATE) / 2))
            b = np.minimum(np.abs(vectors.conj().T @ legs(STATE)[1]), 2)[: STATE // 2]
        of = slice(h, h + 1)
        readouts = [None if m is None else 2 * m[of] for m in c]
        y[..., of] = outputs(lam, (factor * b)[:, None], *readouts[:2], p["D"][of], u[..., of], lengths, True)
    return y


@pytest.mark.parametrize(
    ("name", "bidirectional"), [(name, True) for name in SSM] + [("s5", False), ("s4d", False), ("s4", False)]
)
def test_values(strict, name, bidirectional):
    settings = SSM[name]
    recurrence = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
    params = jax.jit(recurrence.init)(jax.random.key(3))
    if isinstance(settings, S4Recurrence):  # as after training: P and B apart, and complex
        params["P_im"], params["B_im"] = params["B_re"][:, ::-1], 0.5 - params["P_re"]
    if "log_dt_b" in params:  # as after training: they start equal
        np.testing.assert_array_equal(params["log_dt_b"], params["log_dt"])
        params["log_dt_b"] = params["log_dt_b"][::-1] + 0.5
    if name == "s5-clipped":
        params["lam_re"] = params["lam_re"].at[:3].set(0.5)
    lengths, steps = [23, 9, 1], 23
    mask = np.arange(steps)[:, None] < np.array(lengths)
    u = np.asarray(np.random.default_rng(0).normal(size=(steps, 3, WIDTH)), np.float32)
    y = np.asarray(jax.jit(recurrence.scan)(params, u, mask))
    wanted = reference(settings, double(params), u.astype(np.float64), lengths, bidirectional)
    scale = np.max(np.abs(wanted))
    np.testing.assert_allclose(y[mask], wanted[mask], atol=1e-5 * scale)


def test_parameters_and_groups():
    def names(settings, bidirectional):
        layer = recurrences.build(settings, width=WIDTH, state=STATE, bidirectional=bidirectional)
        shapes = {name: leaf.shape for name, leaf in jax.eval_shape(layer.init, jax.random.key(0)).items()}
        return shapes, layer.recurrent_parameters

    h, n, half = (WIDTH,), (STATE,), (STATE // 2,)
    shapes, recurrent = names(S5Recurrence(), True)
    inner = {"lam_re": half, "lam_im": half, "log_dt": half, "B_re": half + h, "B_im": half + h}
    outer = dict.fromkeys(("C_re", "C_im", "C_re_back", "C_im_back"), h + half)
    assert shapes == {**inner, **outer, "D": h}
    assert recurrent == set(inner)
    shapes, recurrent = names(S5Recurrence(conj_sym=False, slow_b=False, slow_dt=False), False)
    assert shapes["C_re"] == h + n
    assert recurrent == {"lam_re", "lam_im"}
    shapes, recurrent = names(S4DRecurrence(), True)
    inner = dict.fromkeys(("A_re_log", "A_im", "B_re", "B_im"), h + half) | {"log_dt": h}
    assert shapes == {**inner, **outer, "D": h}
    assert recurrent == set(inner)
    shapes, recurrent = names(S4DRecurrence(n_ssm=2, train_b=False, slow_dt=False), False)
    assert shapes == {
        "A_re_log": (2, *half),
        "A_im": (2, *half),
        "log_dt": h,
        "C_re": h + half,
        "C_im": h + half,
        "D": h,
    }
    assert recurrent == {"A_re_log", "A_im"}
    shapes, recurrent = names(S4Recurrence(n_ssm=2), True)
    shared = dict.fromkeys(("A_re_log", "A_im", "P_re", "P_im", "B_re", "B_im"), (2, *half))
    assert shapes == {**shared, **outer, "log_dt": h, "D": h}
    assert recurrent == {*shared, "log_dt"}
    assert names(S4Recurrence(slow_dt=False), False)[1] == set(shared)


def count(recurrence, state, **changes):
    config = ModelConfig(recurrence=recurrence, depth=6, width=96, state=state, glu="half", **changes)
    model = Model(config, Spec(name="any", kind="features", features=1, classes=35, length=16))
    return model.count(jax.eval_shape(model.init, jax.random.key(0))[0])


def test_an_s5_network_has_as_many_parameters_as_an_lru_of_half_its_state():
    """Of the sizes that S5 has for spoken commands: (3P + 6PH + H + H^2 + H + 2H) a block, with P = 64, H = 96."""
    lru = count(LRURecurrence(normalize=True), 64, bidirectional=True)
    assert count(S5Recurrence(blocks=16), 128, bidirectional=True) == lru
    assert lru == 6 * (3 * 64 + 6 * 64 * 96 + 96 + 96**2 + 96 + 2 * 96) + (96 + 96) + (96 * 35 + 35)


def test_an_s4d_network_s_parameters():
    """A, B and C of N / 2 complex numbers a channel, its Delta and D."""
    rest = 6 * (96**2 + 96 + 2 * 96) + (96 + 96) + (96 * 35 + 35)
    assert count(S4DRecurrence(), 64) == 6 * (96 * 3 * 64 + 2 * 96) + rest
    assert count(S4DRecurrence(n_ssm=1), 64) == 6 * (2 * 64 + 96 * 64 + 2 * 96) + rest
    # S4 has P too
    assert count(S4Recurrence(), 64) == 6 * (96 * 4 * 64 + 2 * 96) + rest
    assert count(S4Recurrence(n_ssm=1), 64) == 6 * (3 * 64 + 96 * 64 + 2 * 96) + rest


@pytest.mark.parametrize(
    ("recurrence", "state", "rule"),
    [
        ({"kind": "s5", "blocks": 3}, 8, "blocks must divide state, found state = 8, blocks = 3"),
        ({"kind": "s5", "blocks": 2}, 6, "conj_sym = true needs blocks of an even size"),
        ({"kind": "s5"}, 8194, "must not be larger than 4096, found state = 8194, blocks = 1"),
        ({"kind": "s5", "dt_min": 0.2}, 8, "dt_min must not be larger than dt_max, found dt_min = 0.2, dt_max = 0.1"),
        ({"kind": "s4d"}, 7, "s4d needs an even state, for pairs of conjugates, found state = 7"),
        ({"kind": "s4d", "init": "legs"}, 5000, "needs a state of at most 4096, found state = 5000"),
        ({"kind": "s4d", "n_ssm": 4}, 8, "n_ssm must divide width, found n_ssm = 4, width = 6"),
        ({"kind": "s4d", "dt_max": 1e-4}, 8, "found dt_min = 0.001, dt_max = 0.0001"),
        ({"kind": "s4"}, 7, "s4 needs an even state, for pairs of conjugates, found state = 7"),
        ({"kind": "s4"}, 5000, "s4 needs a state of at most 4096, found state = 5000"),
        ({"kind": "s4", "n_ssm": 4}, 8, "n_ssm must divide width, found n_ssm = 4, width = 6"),
        ({"kind": "s4", "dt_max": 1e-4}, 8, "found dt_min = 0.001, dt_max = 0.0001"),
    ],
)
def test_what_does_not_fit_is_refused(recurrence, state, rule):
    model = ModelConfig[KINDS[recurrence["kind"]].settings]
    with pytest.raises(UsageError) as raised:
        convert({"recurrence": recurrence, "depth": 1, "width": 6, "state": state}, model, "a test")
    assert rule in str(raised.value)


LADDER = """
name = "ssm"
title = "state space layers"
source = "ours"

[[rung]]
name = "for-all"
title = "S5"
change = { "model.recurrence.kind" = "s5", "model.recurrence.blocks" = 2, "model.bidirectional" = true }

[[rung]]
name = "for-each"
title = "S4D"
change = { "model.recurrence.kind" = "s4d", "model.recurrence.init" = "legs" }

[[rung]]
name = "with-rank-one"
title = "S4"
change = { "model.recurrence.kind" = "s4" }
"""
SHORT = ("--set", "train.steps=60", "--set", "train.eval_every=60")
SMOKE = ("sDigits", "--profile", "smoke", "--ladder", "ssm.toml")


def test_a_command_says_what_does_not_fit(machine):
    (machine.folder / "ssm.toml").write_text(LADDER)
    done = machine.run("plan", *SMOKE, "--set", "model.state=15", code=2)
    assert "blocks must divide state, found state = 15, blocks = 2" in done.stderr
    assert "hint: change one of the values named above" in done.stderr


@pytest.mark.slow
def test_all_are_trained_reported_and_drawn(machine):
    (machine.folder / "ssm.toml").write_text(LADDER)
    machine.run("ladder", *SMOKE, *SHORT)
    rows = {row["rung"]: row for row in machine.json("report", *SMOKE, *SHORT)["rows"]}
    # one block of width 16 and state 16
    rest = 2 * (16**2 + 16) + 2 * 16 + 16 + 16 + 16 * 10 + 10
    shapes = {"for-all": 3 * 8 + 6 * 8 * 16 + 16, "for-each": 2 * 16 + 4 * 16 * 8 + 4 * 16 * 8}
    shapes["with-rank-one"] = shapes["for-each"] + 2 * 16 * 8
    assert {name: (row["n"], row["parameters"]) for name, row in rows.items()} == {
        name: (1, rest + shape) for name, shape in shapes.items()
    }
    machine.run("plot", *SMOKE, *SHORT, "--kind", "eigenvalues", "--out", "a.png")
    assert (machine.folder / "a.png").read_bytes().startswith(b"\x89PNG")
