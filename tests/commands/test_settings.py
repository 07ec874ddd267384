"""Values of --set and of documents: which paths they have, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from lrurun import data as tasks
from lrurun import decoding
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import known_paths
from lrurun.config.settings import flatten, parse_set
from tests.harness.plans import LADDER, RECIPE, changed, error, make, rungs, write_documents


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def test_a_set_of_what_some_rungs_have_applies_to_those():
    made = rungs(make(sets=["model.recurrence.activation=relu", "model.recurrence.normalize=true"]))
    assert [rung.config.model.recurrence for rung in made.values()] == [
        decoding.convert(table, type(made[name].config.model.recurrence), "x")
        for name, table in (
            ("dense", {"kind": "dense", "activation": "relu"}),
            ("plane", {"kind": "diagonal", "normalize": True}),
            ("ring", {"kind": "diagonal", "normalize": True, "r_min": 0.5, "r_max": 0.9}),
            ("norm", {"kind": "diagonal", "normalize": True, "r_min": 0.5, "r_max": 0.9}),
        )
    ]


def test_a_set_that_no_rung_has_is_refused():
    dense = LADDER.partition('\n[[rung]]\nname = "plane"')[0]
    dense = changed(dense, 'name = "mine"', 'name = "one"')
    assert error(ladder=dense, sets=["model.recurrence.r_min=0.5"]) == (
        "--set model.recurrence.r_min: no rung of this ladder has it",
        "lrurun plan sDigits shows what the rungs have",
    )


def test_a_set_kind_replaces_the_recipes_recurrence_but_not_what_rungs_set():
    recipe = RECIPE + '\n[model.recurrence]\nkind = "dense"\nactivation = "relu"\n'
    depths = 'name = "m"\ntitle = "m"\nsource = "s"\n' + "".join(
        f'\n[[rung]]\nname = "d{depth}"\ntitle = "d"\nchange = {{ "model.depth" = {depth} }}\n' for depth in (1, 2)
    )
    made = make(recipe, depths, sets=["model.recurrence.kind=diagonal", "model.recurrence.r_min=0.5"])
    for rung in made.rungs:
        assert msgspec.to_builtins(rung.config.model.recurrence)["r_min"] == 0.5
        assert rung.sources["model.recurrence.kind"] == "--set model.recurrence.kind"
    assert error(sets=["model.recurrence.kind=diagonal"]) == (
        "--set model.recurrence.kind=diagonal: rung dense sets model.recurrence.activation, which this kind does not "
        "have (l.toml, rung dense)",
        "leave it out: what the rungs change belongs to the ladder",
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("optim.lr", "--set optim.lr: expected path=value", "as in --set optim.lr=0.002"),
        ("=3", "--set =3: expected path=value", "as in --set optim.lr=0.002"),
        ("optim.lrate=1", "--set optim.lrate: unknown name", "did you mean 'optim.lr'?"),
        ("lr=1", "--set lr: unknown name", "did you mean 'optim.lr'?"),
        (
            "zzz=1",
            "--set zzz: unknown name",
            "paths begin with model., optim., train. or execution., of a program with settings.",
        ),
        (
            "task=x",
            "--set task: unknown name",
            "paths begin with model., optim., train. or execution., of a program with settings.",
        ),
        ("seed=3", "--set seed: seeds are not set this way", "use --seeds 0,1,2"),
        ("optim.lr=", '--set optim.lr: expected a number, found ""', "give it another value: --set optim.lr=..."),
        ("optim.lr=-1", "--set optim.lr: expected a number > 0, found -1", "give it another value: --set optim.lr=..."),
        (
            "optim.lr=inf",
            "--set optim.lr: expected a finite number, found inf",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=nan",
            "--set optim.lr: expected a finite number, found nan",
            "give it another value: --set optim.lr=...",
        ),
        ("optim.lr=true", "--set optim.lr: expected a number, found true", "give it another value: --set optim.lr=..."),
        (
            "optim.lr={ a = 1 }",
            "--set optim.lr: expected a number, found a table",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=[1]",
            "--set optim.lr: expected a number, found a list",
            "give it another value: --set optim.lr=...",
        ),
        (
            "optim.lr=1\ny=2",
            '--set optim.lr: expected a number, found "1\\ny=2"',
            "give it another value: --set optim.lr=...",
        ),
        (
            "train.steps=0",
            "--set train.steps: expected a whole number >= 1, found 0",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=1e3",
            "--set train.steps: expected a whole number, found 1000.0",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=99999999999999999999",
            "--set train.steps: expected a whole number <= 2147483647, found 99999999999999999999",
            "give it another value: --set train.steps=...",
        ),
        (
            "train.steps=" + "9" * 5000,
            f'--set train.steps: expected a whole number, found "{"9" * 56}...',
            "give it another value: --set train.steps=...",
        ),
        (
            "model.norm=btach",
            '--set model.norm: expected one of batch, layer, found "btach"',
            "did you mean 'batch'?",
        ),
        (
            "model.recurrence.kind=dens",
            f'--set model.recurrence.kind: expected one of {", ".join(KINDS)}, found "dens"',
            "did you mean 'dense'?",
        ),
        (
            "model.recurrence.kind=[1]",
            f"--set model.recurrence.kind: expected one of {', '.join(KINDS)}, found a list",
            "give it another value: --set model.recurrence.kind=...",
        ),
        (
            "model.recurrence.r_min=0.95",
            "--set model.recurrence.r_min: r_min must not be larger than r_max, found r_min = 0.95, r_max = 0.9",
            "change one of the values named above",
        ),
        (
            "optim.floor=0.5",
            "--set optim.floor: floor must not be larger than lr, found floor = 0.5, lr = 0.01",
            "change one of the values named above",
        ),
        (
            "execution.threads=0",
            "--set execution.threads: expected a whole number >= 1, found 0",
            "give it another value: --set execution.threads=...",
        ),
    ],
)
def test_a_wrong_set_is_refused(text, message, hint):
    assert error(sets=[text]) == (message, hint)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optim.lr=1e-3", 1e-3),
        ("model.norm=layer", "layer"),
        ('model.norm="layer"', "layer"),
        ("model.bidirectional=true", True),
        ("model.glu=a=b", "a=b"),
    ],
)
def test_a_set_is_toml_or_a_string(text, value):
    assert parse_set(text) == (text.partition("=")[0], value)


@pytest.mark.parametrize(
    ("recipe", "ladder", "message", "hint"),
    [
        (
            changed(RECIPE, "lr = 0.01", "lr = -1"),
            LADDER,
            "r.toml, optim.lr: expected a number > 0, found -1",
            "change optim.lr in r.toml",
        ),
        (
            changed(RECIPE, "[ladder.mine.rung.ring.optim]\nlr = 0.02", "[ladder.mine.rung.ring.optim]\nlr = inf"),
            LADDER,
            "r.toml [ladder.mine.rung.ring], optim.lr: expected a finite number, found inf",
            "change optim.lr in r.toml [ladder.mine.rung.ring]",
        ),
        (
            changed(RECIPE, "r_min = 0.5\nr_max = 0.9", "r_min = 0.9\nr_max = 0.5"),
            LADDER,
            "r.toml [ladder.mine.rung.ring], model.recurrence: "
            "r_min must not be larger than r_max, found r_min = 0.9, r_max = 0.5",
            "change one of the values named above",
        ),
        (
            changed(RECIPE, "depth = 1\n", ""),
            LADDER,
            "r.toml, model.depth: missing",
            "add depth to model",
        ),
        (
            changed(RECIPE, "[train]\nsteps = 10", "[execution]\nthreads = 1.5\n[train]\nsteps = 10"),
            LADDER,
            "r.toml, execution.threads: expected a whole number, found 1.5",
            "change execution.threads in r.toml",
        ),
        (
            changed(RECIPE, "r_min = 0.5\n", ""),
            LADDER,
            "r.toml: [ladder.mine.rung.ring] does not set model.recurrence.r_min, which ladder mine expects from it",
            "add model.recurrence.r_min to [ladder.mine.rung.ring], or write it into the ladder's rung",
        ),
        (
            changed(RECIPE, '"sDigits"', '"sDigit"'),
            LADDER,
            "r.toml, task: unknown task 'sDigit'",
            f"did you mean 'sDigits'? it is one of {len(tasks.TASKS)} tasks; {tasks.OF_PLUG_IN}",
        ),
        (
            RECIPE,
            changed(LADDER, '"model.recurrence.normalize" = true', '"model.recurrence.normalize" = 1'),
            "l.toml, rung norm, model.recurrence.normalize: expected true or false, found 1",
            "change model.recurrence.normalize in l.toml, rung norm",
        ),
        (
            RECIPE,
            changed(LADDER, '"model.recurrence.normalize" = true', '"model.recurrence.activation" = "relu"'),
            "l.toml, rung norm, model.recurrence.activation: unknown name",
            "did you mean 'parametrization'? known names here: kind, parametrization, phase, r_min, r_max, max_phase, "
            "normalize, train_gamma, conjugate, heads",
        ),
        (
            RECIPE,
            changed(
                LADDER, '"model.recurrence.kind" = "dense", "model.recurrence.activation" = "tanh"', '"model.depth" = 2'
            ),
            "r.toml, model.recurrence: missing",
            "add recurrence to model",
        ),
    ],
)
def test_wrong_values_are_reported_with_their_file(recipe, ladder, message, hint):
    assert error(recipe, ladder) == (message, hint)


def test_every_known_path_is_one_that_a_config_has():
    made = make()
    flat = {path for rung in made.rungs for path in flatten(msgspec.to_builtins(rung.config))} - {("seed", 0)}
    names = {path for path, _ in flat} - {"seed", "task", "data.version"}
    names |= {path for path, _ in flatten(msgspec.to_builtins(made.rungs[0].execution), "execution.")}
    # settings of kinds that no rung has
    names |= {p for one in KINDS.values() for p, _ in flatten(msgspec.to_builtins(one.settings()), "model.recurrence.")}
    assert sorted(known_paths()) == sorted(names)
