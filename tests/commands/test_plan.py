"""Plans: precedence, what each rung changes, where every value comes from, and how many seeds verdicts need."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lrurun import console
from lrurun.config.fingerprint import fingerprint
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.planning import final_runs
from lrurun.config.recurrences import KINDS
from lrurun.config.resolve import Difference
from lrurun.config.schema import Execution, known_paths
from lrurun.config.settings import flatten, parse_sets, set_text
from lrurun.errors import LrurunError, UsageError
from tests.harness.machine import Machine
from tests.harness.plans import LADDER, RECIPE, changed, differences, error, make, on, rungs, write_documents
from tests.harness.results import fill


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    return write_documents(tmp_path, monkeypatch)


def test_a_difference_has_both_values_and_the_source():
    moves = rungs(make())["ring"].differences
    assert moves == (
        Difference("model.recurrence.r_min", 0.0, 0.5, "r.toml [ladder.mine.rung.ring]"),
        Difference("model.recurrence.r_max", 1.0, 0.9, "r.toml [ladder.mine.rung.ring]"),
        Difference("optim.lr", 0.01, 0.02, "r.toml [ladder.mine.rung.ring]"),
    )
    dropped = {move.path: move for move in rungs(make())["plane"].differences}
    assert dropped["model.recurrence.activation"] == Difference(
        "model.recurrence.activation", "tanh", None, "l.toml, rung plane"
    )
    assert dropped["model.recurrence.r_max"].source == "default"


def test_model_values_of_a_rung_table_are_inherited_and_optimizer_values_are_not():
    made = rungs(make())
    assert [rung.config.optim.lr for rung in made.values()] == [0.01, 0.01, 0.02, 0.01]
    norm = made["norm"].config.model.recurrence
    assert (norm.r_min, norm.r_max, norm.normalize) == (0.5, 0.9, True)
    assert made["norm"].sources["model.recurrence.r_min"] == "r.toml [ladder.mine.rung.ring]"
    assert made["norm"].sources["optim.lr"] == "r.toml"


def test_optimizer_values_of_the_ladder_are_inherited():
    kind = '"model.recurrence.kind" = "diagonal"'
    made = make(ladder=changed(LADDER, kind, f'{kind}, "optim.weight_decay" = 0'))
    assert [rung.config.optim.weight_decay for rung in made.rungs] == [0.05, 0.0, 0.0, 0.0]


def test_a_rung_with_the_values_of_its_base_shares_its_runs():
    # the whole disk: the ring of rung.ring is where plane starts already
    disk = changed(
        RECIPE, "r_min = 0.5\nr_max = 0.9\n\n[ladder.mine.rung.ring.optim]\nlr = 0.02", "r_min = 0\nr_max = 1.0"
    )
    made = make(disk)
    assert made.same_as_base == {"ring"}
    ring, plane = rungs(made)["ring"], rungs(made)["plane"]
    assert ring.differences == ()
    assert [w.fingerprint for w in final_runs(made, ring, (0, 1))] == [
        w.fingerprint for w in final_runs(made, plane, (0, 1))
    ]
    assert make().same_as_base == frozenset()


def test_a_rung_that_differs_only_in_its_learning_rate_shares_no_runs():
    own_rate = changed(RECIPE, "r_min = 0.5\nr_max = 0.9", "r_min = 0.0\nr_max = 1.0")
    assert make(own_rate).same_as_base == frozenset()


def test_a_kind_change_drops_the_old_settings_wherever_it_is_written():
    back = LADDER + '\n[[rung]]\nname = "again"\ntitle = "x"\nchange = { "model.recurrence.kind" = "dense" }\n'
    again = rungs(make(ladder=back))["again"]
    assert msgspec.to_builtins(again.config.model.recurrence) == {
        "kind": "dense",
        "activation": "identity",
        "draw": "normal",
        "radius": 0.0,
    }
    # in the recipe, with the kind after its settings
    late = RECIPE + '\n[ladder.mine.rung.norm.model.recurrence]\nactivation = "relu"\nkind = "dense"\n'
    plain = changed(LADDER, '"model.recurrence.normalize" = true', '"model.depth" = 2')
    assert msgspec.to_builtins(rungs(make(late, plain))["norm"].config.model.recurrence) == {
        "kind": "dense",
        "activation": "relu",
        "draw": "normal",
        "radius": 0.0,
    }


def test_a_rung_on_an_earlier_one_has_its_values():
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5') + on("ring", "wide", '"model.width" = 16')
    made = rungs(make(ladder=ladder))
    assert [rung.on for rung in made.values()] == [None, "dense", "plane", "ring", "plane", "ring"]
    half = made["half"]
    recurrence = half.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.0, 0.5, False)
    assert half.differences == (Difference("model.recurrence.r_max", 1.0, 0.5, "l.toml, rung half"),)
    # the model values of [ladder.mine.rung.ring] are inherited, those of the optimizer are not
    wide = made["wide"]
    recurrence = wide.config.model.recurrence
    assert (recurrence.r_min, recurrence.r_max, recurrence.normalize) == (0.5, 0.9, False)
    assert wide.sources["model.recurrence.r_min"] == "r.toml [ladder.mine.rung.ring]"
    assert {move.path: (move.before, move.after) for move in wide.differences} == {
        "model.width": (8, 16),
        "optim.lr": (0.02, 0.01),
    }
    # the rungs that the branch leaves are as they are without it
    alone = rungs(make())
    assert {name: made[name] for name in alone} == alone


def test_a_rung_after_a_branch_goes_on_from_the_branch():
    kind = '"model.recurrence.kind" = "diagonal"'
    ladder = changed(LADDER, kind, f'{kind}, "optim.weight_decay" = 0') + on("dense", "relu", '"model.depth" = 2')
    ladder += '\n[[rung]]\nname = "deep"\ntitle = "x"\nchange = { "model.depth" = 3 }\n'
    made = rungs(make(ladder=ladder))
    for name, depth in (("relu", 2), ("deep", 3)):
        assert msgspec.to_builtins(made[name].config.model.recurrence)["activation"] == "tanh"
        assert (made[name].config.model.depth, made[name].config.optim.weight_decay) == (depth, 0.05)
    assert made["deep"].on == "relu"
    assert differences(made["deep"]) == {"model.depth": 3}


def test_a_rung_is_compared_with_its_base():
    # `again` is plane, two rungs on; `too` is the one before it, and yet changes ring
    ladder = LADDER + on("plane", "again", '"model.recurrence.r_max" = 1') + on("ring", "too", '"model.depth" = 1')
    same = changed(RECIPE, "[ladder.mine.rung.ring.optim]\nlr = 0.02", "")
    made = make(same, ladder)
    assert made.same_as_base == {"again", "too"}
    assert rungs(made)["again"].differences == ()
    plane, again = (final_runs(made, rungs(made)[name], (0, 1)) for name in ("plane", "again"))
    assert [want.fingerprint for want in again] == [want.fingerprint for want in plane]
    neighbours = LADDER + on("ring", "twin", '"model.recurrence.normalize" = true')
    assert make(same, neighbours).same_as_base == frozenset()


def test_the_plan_names_a_base_that_is_not_the_previous_rung(machine, monkeypatch, golden):
    write_documents(machine.folder, monkeypatch)
    machine.env["XDG_DATA_HOME"] = str(machine.folder / "share")  # without the data, which other tests prepare
    ladder = LADDER + on("plane", "half", '"model.recurrence.r_max" = 0.5')
    Path("l.toml").write_text(ladder + on("dense", "same", '"model.recurrence.activation" = "tanh"'))
    command = ("plan", "./r.toml", "--ladder", "./l.toml", "--set", "optim.lr=0.01")
    rows = machine.json(*command)["rungs"]
    bases = {"dense": None, "plane": "dense", "ring": "plane", "norm": "ring", "half": "plane", "same": "dense"}
    assert {row["rung"]: row["on"] for row in rows} == bases
    calls = (command, (*command[:4], "--tune"), (*command, "--rung", "norm", "-v"))
    golden("plan.txt", "\n".join(machine.shown(*words, width=80) for words in calls))


def test_what_a_new_kind_has_by_default_is_no_change(machine, monkeypatch):
    monkeypatch.chdir(machine.folder)
    machine.env["XDG_DATA_HOME"] = str(machine.folder / "share")
    machine.run("new", "recurrence", "averages")
    ladder = Path("averages.toml").read_text()
    shown = []
    for new in ("", ', "model.recurrence.longest" = 64.0', ', "model.recurrence.longest" = 32.0'):
        Path("averages.toml").write_text(ladder.replace(', "model.recurrence.longest" = 64.0', new))
        lines = machine.run("plan", "npDigits", "--ladder", "averages.toml").stdout.splitlines()
        [line] = [line for line in lines if line.startswith("averages ")]
        shown.append(line.partition("unknown")[2].strip())
        checked = machine.json("check", "ladder", "averages.toml")["findings"][1]["detail"]
        assert ("model.recurrence.longest" in checked) == (new != "")
    assert shown == [
        "kind = averages; code = averages.py",
        "kind = averages; longest = 64; code = averages.py",
        "kind = averages; longest = 32; code = averages.py",  # the ladder says so
    ]
    moves = {
        move["path"] for move in machine.json("plan", "npDigits", "--ladder", "averages.toml")["rungs"][1]["moves"]
    }
    assert "model.recurrence.longest" in moves


def test_later_wins_recipe_profile_rung_set():
    sets = {"train.steps": 6, "model.recurrence.r_max": 0.7, "optim.lr": 0.5}
    one, two, three = make(), make(profile="small"), make(profile="small", sets=sets)
    ring = [rungs(plan)["ring"] for plan in (one, two, three)]
    assert [rung.config.model.width for rung in ring] == [8, 4, 4]
    assert [rung.config.train.steps for rung in ring] == [10, 4, 6]
    assert [rung.config.model.recurrence.r_max for rung in ring] == [0.9, 0.8, 0.7]
    assert [rung.config.optim.lr for rung in ring] == [0.02, 0.02, 0.5]
    assert [rung.execution.threads for rung in ring] == [1, 2, 2]
    assert [plan.seeds for plan in (one, two, three)] == [2, 1, 1]
    assert {rung.config.optim.lr for rung in three.rungs} == {0.5}


def test_the_source_of_every_value_is_kept():
    ring = rungs(make(profile="small", sets={"model.state": 16}))["ring"]
    assert {path for path, _ in flatten(msgspec.to_builtins(ring.config))} <= {*ring.sources, "code"}
    assert {path: source for path, source in ring.sources.items() if source != "default"} == {
        "task": "r.toml",
        "data.version": "task sDigits",
        "seed": "the ladder's seeds",
        "model.recurrence.kind": "l.toml, rung plane",
        "model.recurrence.r_min": "r.toml [ladder.mine.rung.ring]",
        "model.recurrence.r_max": "r.toml [profile.small.ladder.mine.rung.ring]",
        "model.depth": "r.toml",
        "model.width": "r.toml [profile.small]",
        "model.state": "--set model.state",
        "optim.lr": "r.toml [ladder.mine.rung.ring]",
        "optim.recurrent_factor": "r.toml",
        "optim.weight_decay": "r.toml",
        "train.steps": "r.toml [profile.small]",
        "train.batch": "r.toml",
        "train.eval_every": "r.toml",
        "execution.threads": "r.toml [profile.small]",
    }


def test_execution_settings_change_no_fingerprint_and_no_instance():
    plain = make()
    other = make(
        sets={"execution.threads": 3, "execution.checkpoint_seconds": 0, "execution.scan_backend": "sequential"}
    )
    assert other.rungs[0].execution == Execution(threads=3, checkpoint_seconds=0.0, scan_backend="sequential")
    for one, two in zip(plain.rungs, other.rungs, strict=True):
        assert fingerprint(one.config) == fingerprint(two.config)
    assert plain.spec == other.spec
    assert (plain.spec.set, plain.spec.tune) == ({}, False)


def test_an_instance_is_of_values_not_of_words():
    specs = [make(sets=parse_sets([text])).spec for text in ("optim.lr=1", "optim.lr=1.0", " optim.lr = 1e0 ")]
    assert specs == [specs[0]] * 3
    assert (specs[0].set, specs[0].tune) == ({"optim.lr": 1.0}, False)
    assert all(isinstance(spec.set["optim.lr"], float) for spec in specs)
    # and what was kept of it makes it again
    kept = make(sets={"optim.lr": 1, "model.recurrence.r_max": 0.75})
    assert make(sets=kept.changes) == kept


def test_a_set_of_what_some_rungs_have_applies_to_those():
    made = rungs(make(sets={"model.recurrence.activation": "relu", "model.recurrence.normalize": True}))
    normalized = [getattr(rung.config.model.recurrence, "normalize", None) for rung in made.values()]
    assert normalized == [None, True, True, True]
    assert made["dense"].config.model.recurrence.activation == "relu"
    assert made["norm"].config.model.recurrence.r_min == 0.5


def test_a_set_kind_replaces_the_recipes_recurrence_but_not_what_rungs_set():
    recipe = RECIPE + '\n[model.recurrence]\nkind = "dense"\nactivation = "relu"\n'
    depths = 'name = "m"\ntitle = "m"\nsource = "s"\n' + "".join(
        f'\n[[rung]]\nname = "d{depth}"\ntitle = "d"\nchange = {{ "model.depth" = {depth} }}\n' for depth in (1, 2)
    )
    made = make(recipe, depths, sets={"model.recurrence.kind": "diagonal", "model.recurrence.r_min": 0.5})
    for rung in made.rungs:
        assert msgspec.to_builtins(rung.config.model.recurrence)["r_min"] == 0.5
        assert rung.sources["model.recurrence.kind"] == "--set model.recurrence.kind"
    message, hint = error(sets={"model.recurrence.kind": "diagonal"})
    assert "rung dense sets model.recurrence.activation, which this kind does not have (l.toml, rung dense)" in message
    assert hint == "leave it out: what the rungs change belongs to the ladder"
    dense = changed(LADDER.partition('\n[[rung]]\nname = "plane"')[0], 'name = "mine"', 'name = "one"')
    message, _ = error(ladder=dense, sets={"model.recurrence.r_min": 0.5})
    assert message == "--set model.recurrence.r_min: no rung of this ladder has it"


AGAIN = "give it another value: --set "


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("optim.lr", "--set optim.lr: expected path=value", "as in --set optim.lr=0.002"),
        ("=3", "--set =3: expected path=value", "as in"),
        ("lr=1", "--set lr: unknown name", "did you mean 'optim.lr'?"),
        ("task=x", "--set task: unknown name", "paths begin with model., optim., train. or execution."),
        ("seed=3", "--set seed: seeds are not set this way", "use --seeds 0,1,2"),
        ("optim.lr=", 'expected a number, found ""', AGAIN),
        ("optim.lr=0", "expected a number > 0, found 0", AGAIN),
        ("optim.lr=inf", "expected a finite number, found inf", AGAIN),
        ("optim.lr=true", "expected a number, found true", AGAIN),
        ("optim.lr={ a = 1 }", "expected a number, found a table", AGAIN),
        ("optim.lr=1\ny=2", 'expected a number, found "1\\ny=2"', AGAIN),
        ("train.steps=0", "expected a whole number >= 1, found 0", AGAIN),
        ("train.steps=1e3", "expected a whole number, found 1000.0", AGAIN),
        ("train.steps=2147483648", "expected a whole number <= 2147483647, found 2147483648", AGAIN),
        ("train.steps=" + "9" * 5000, f'expected a whole number, found "{"9" * 56}...', AGAIN),
        ("model.norm=btach", 'expected one of batch, layer, found "btach"', "did you mean 'batch'?"),
        ("model.recurrence.kind=dens", 'found "dens"', "did you mean 'dense'?"),
        ("model.recurrence.kind=[1]", "found a list", AGAIN),
        ("model.recurrence.r_min=0.95", "not be larger than r_max, found r_min = 0.95, r_max = 0.9", "change one of"),
        ("optim.floor=0.5", "floor must not be larger than lr, found floor = 0.5, lr = 0.01", "change one of"),
        ("train.protocol=paper", "sDigits has no protocol 'paper'", "protocols of this task: holdout"),
    ],
    ids=range(21),
)
def test_a_wrong_set_is_refused(text, message, hint):
    with pytest.raises(UsageError) as caught:
        make(sets=parse_sets([text]))
    said, then = caught.value.message, str(caught.value.hint)
    assert said.startswith("--set ")
    assert message in said
    assert then.startswith(hint)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optim.lr=1e-3", 1e-3),
        ("model.norm=layer", "layer"),
        ('model.norm="layer"', "layer"),
        ("model.bidirectional=true", True),
        ("model.glu=a=b", "a=b"),
        ('model.glu="3"', "3"),
        ("model.glu=[0.5, 1]", [0.5, 1]),
    ],
)
def test_a_set_is_toml_or_a_string(text, value):
    path = text.partition("=")[0]
    assert parse_sets([text]) == {path: value}
    assert parse_sets([set_text(path, value)]) == {path: value}


NORMALIZE, RING = '"model.recurrence.normalize" = true', "[ladder.mine.rung.ring]"


@pytest.mark.parametrize(
    ("of_recipe", "old", "new", "message", "hint"),
    [
        (True, "lr = 0.01", "lr = -1", "r.toml, optim.lr: expected a number > 0", "change optim.lr in r.toml"),
        (
            True,
            "lr = 0.02",
            "lr = inf",
            f"r.toml {RING}, optim.lr: expected a finite",
            f"change optim.lr in r.toml {RING}",
        ),
        (True, "r_max = 0.9", "r_max = 0.4", f"r.toml {RING}, model.recurrence: r_min must not", "change one of"),
        (True, "depth = 1\n", "", "r.toml, model.depth: missing", "add depth to model"),
        (
            True,
            "r_min = 0.5\n",
            "",
            f"r.toml: {RING} does not set model.recurrence.r_min",
            "add model.recurrence.r_min",
        ),
        (True, '"sDigits"', '"sDigit"', "r.toml, task: unknown task 'sDigit'", "did you mean 'sDigits'?"),
        (
            False,
            NORMALIZE,
            NORMALIZE.replace("true", "1"),
            "l.toml, rung norm, model.recurrence.normalize: exp",
            "change",
        ),
        (
            False,
            NORMALIZE,
            '"model.recurrence.activation" = "relu"',
            "rung norm, model.recurrence.activation: unk",
            "did",
        ),
    ],
    ids=range(8),
)
def test_wrong_values_are_reported_with_their_file(of_recipe, old, new, message, hint):
    said, then = error(*((changed(RECIPE, old, new), LADDER) if of_recipe else (RECIPE, changed(LADDER, old, new))))
    assert message in said
    assert then.startswith(hint)


def test_every_known_path_is_one_that_a_config_has():
    made = make()
    names = {path for rung in made.rungs for path, _ in flatten(msgspec.to_builtins(rung.config))}
    names -= {"seed", "task", "data.version"}
    names |= {path for path, _ in flatten(msgspec.to_builtins(made.rungs[0].execution), "execution.")}
    # settings of kinds and optimisers that no rung has
    names |= {f"optim.{name}" for one in OPTIMIZERS.values() for name in one.settings.__struct_fields__}
    names |= {p for one in KINDS.values() for p, _ in flatten(msgspec.to_builtins(one.settings()), "model.recurrence.")}
    assert sorted(known_paths()) == sorted(names)


# How many seeds firm verdicts need


FIRM = ("sDigits", "--ladder", "nonlinearity")
COMMAND = "lrurun ladder sDigits --ladder nonlinearity"


def fill_ladder(machine: Machine, seeds: int, first: int = 0) -> None:
    centers = {"relu-rnn": 0.2, "tanh-rnn": 0.8, "linear-rnn": 0.805}
    scores = {rung: [mean + 0.02 * (7 * k % 5 - 2) for k in range(first, seeds)] for rung, mean in centers.items()}
    fill(machine.ledger, "sDigits", scores, ladder="nonlinearity", first=first)


def test_plan_and_ladder_say_what_firm_verdicts_need(machine):
    plan = ("plan", *FIRM, "--seeds", "2")
    expected = {
        "seeds": 12,
        "runs_left": 36,
        "eta_seconds": None,
        "command": f"{COMMAND} --seeds 12",
        "compiles": True,
        "extends": False,
    }
    assert machine.json(*plan)["firm"] == expected
    fill_ladder(machine, 2)
    firm = machine.json(*plan)["firm"]
    assert (firm["runs_left"], firm["eta_seconds"] > 0) == (30, True)
    text = " ".join(machine.run(*plan).stdout.split())
    needed = f"{COMMAND} --seeds 12 (30 runs, about "
    assert f"Firm verdicts need 12 seeds a rung, chosen beforehand: {needed}" in text
    text = " ".join(machine.run("ladder", *FIRM, "--seeds", "2").stdout.split())
    assert "provisional, fewer than 12 seeds (all rungs)" in text
    assert f"Next: {needed}" in text
    pair = ("--rung", "relu-rnn", "--rung", "tanh-rnn")
    firm = machine.json(*plan, *pair)["firm"]
    assert (firm["runs_left"], firm["command"]) == (20, f"{COMMAND} {' '.join(pair)} --seeds 12")
    for more in (("--rung", "relu-rnn"), ("--seeds", "12"), ("--seeds", "0-14"), ("--profile", "smoke")):
        assert machine.json(*plan, *more)["firm"] is None, more
    assert machine.json("plan", *FIRM, "--decide")["firm"] is None
    assert "irm verdicts" not in machine.run(*plan, "--seeds", "12").stdout
    for seeds in ("5", "13"):
        said = machine.refused("plan", *FIRM, "--decide", "--max-seeds", seeds)
        assert f"--max-seeds {seeds}: expected 12 or 20, the looks of the design" in said


def test_after_a_look_seeds_are_added_by_the_design_alone(machine):
    """The answer proposes a repetition with fresh seeds, whatever the data folder has."""
    fill_ladder(machine, 12)
    assert machine.json("plan", *FIRM, "--seeds", "2")["firm"] is None
    out = machine.run("ladder", *FIRM, "--decide", "--max-seeds", "12").stdout
    assert "--seeds 12-31 --ledger fresh.db (60 runs" in out
    folder = machine.folder / "data" / Path(machine.json("data", "info", "sDigits")["folder"]).name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    named = machine.run("report", *FIRM, "--ledger", "ledger.db", "--data-dir", "data").stdout
    [more] = [line for line in named.splitlines() if "More:" in line]
    assert more.count("--ledger ledger.db") == 3, "proposed commands use the ledger that this one named"
    assert "--seeds 12-31 --ledger fresh.db (60 runs) asks again" in " ".join(named.split())
    assert machine.json("plan", *FIRM, "--seeds", "3")["firm"] is None


@pytest.mark.slow
def test_a_repetition_is_not_repeated_and_a_missing_seed_is_no_repetition(machine, tmp_path):
    fill_ladder(machine, 32, first=12)
    assert "Next:" not in machine.run("report", *FIRM).stdout, "seeds 12 to 31 are the repetition"
    other = Machine(tmp_path / "other")
    fill_ladder(other, 11)
    fill(other.ledger, "sDigits", {"relu-rnn": [0.2]}, ladder="nonlinearity", first=11)
    assert "asks again with fresh seeds" in " ".join(other.run("report", *FIRM).stdout.split())


def test_a_report_says_how_many_seeds_a_difference_needs(machine):
    fill_ladder(machine, 5)
    found = machine.json("report", *FIRM, "--detect", "2")["detect"]
    assert found["difference"] == pytest.approx(0.02), "two points"
    assert set(found["seeds"]) == {"tanh-rnn", "linear-rnn"}, "each beside its base"
    assert min(found["seeds"].values()) > 12
    easier = machine.json("report", *FIRM, "--detect", "4.5")["detect"]["seeds"]
    assert all(12 <= easier[rung] < found["seeds"][rung] for rung in easier)
    text = " ".join(machine.run("report", *FIRM, "--detect", "4.5").stdout.split())
    assert "Seeds a side to detect 4.5 points between a rung and its base (by means, power 80 %" in text


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((*FIRM, "--detect", "0"), "--detect: expected a number of at least 0.0001, found '0'"),
        (("--all", "--detect", "2"), "--detect and --all exclude each other"),
        ((*FIRM, "--speed", "--detect", "2"), "--detect and --speed exclude each other"),
        ((*FIRM, "--by", "optim.lr", "--detect", "2"), "--detect and --by exclude each other"),
        ((*FIRM, "--format", "csv", "--detect", "2"), "--detect and --format csv exclude each other"),
        (("study:memory", "--detect", "2"), "--detect: does not apply to reports of studies"),
    ],
)
def test_detect_is_a_positive_difference_on_one_task(machine, words, error):
    assert error in machine.refused("report", *words)


def test_a_plan_says_what_the_ladder_says_first(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise LrurunError("no connection")

    monkeypatch.setattr("lrurun.session.preparing.prepare_data", fail)
    monkeypatch.setattr("lrurun.machine.accelerators", lambda: [])
    where = ("--data-dir", "d")
    scale, data = machine.json("plan", "sCIFAR", *where)["notes"]
    assert scale.startswith("the plain recipe of sCIFAR is of the paper's scale, about 206 hours on one NVIDIA A100, ")
    assert data == "the data of sCIFAR are not in d/sCIFAR: 170 MB to download from www.cs.toronto.edu " + (
        "(cifar-10-binary.tar.gz)"
    )
    for words in (
        ("plan", "sCIFAR"),
        ("plan", "sCIFAR", "--sweep", "optim.lr=0.1,0.2"),
        ("ladder", "sCIFAR", "--dry-run"),
    ):
        done = machine.run(*words, *where)
        assert [done.stdout.count(f"{note[0].upper()}{note[1:]}.\n") for note in (scale, data)] == [1, 1]
        assert done.stderr == ""
    said = machine.refused("ladder", "sCIFAR", *where, code=1)
    assert said == f"warning: {scale}\n{data}\nerror: no connection\n"
    [data] = machine.json("plan", "sCIFAR", "--profile", "smoke", *where)["notes"]
    assert machine.refused("ladder", "sCIFAR", "--profile", "smoke", *where, code=1).startswith(f"{data}\n")


def test_a_plan_says_what_data_need(machine: Machine) -> None:
    def said(task: str) -> list[str]:
        notes = machine.json("plan", task, "--data-dir", "d")["notes"]
        return [note for note in notes if note.startswith("the data of ")]

    assert said("sDigits") == said("ListOps") == [], "lrurun has or makes them"
    [text] = said("Retrieval")
    assert ": 3 files to download from huggingface.co (new_aan_pairs.train.tsv, " in text
    [text] = said("PG19")
    assert ", and must come from you; if you have a copy: lrurun data prepare PG19 --from PATH" in text
    (machine.folder / "d/downloads").mkdir(parents=True)
    (machine.folder / "d/downloads/cifar-10-binary.tar.gz").touch()
    assert said("sCIFAR") == [], "it is downloaded already"


TRAININGS = """\
name = "trainings"
title = "Ways to train"
source = "ours"

[[rung]]
name = "cosine"
title = "a cosine"
change = { "model.recurrence.kind" = "diagonal", "model.recurrence.r_min" = 0.5, "model.recurrence.r_max" = 0.9 }

[[rung]]
name = "small"
title = "a smaller radius"
change = { "model.recurrence.r_max" = 0.8 }

[[rung]]
name = "wsd"
title = "warm-up, stable, decay"
change = { "optim.schedule" = "wsd", "optim.warmup_steps" = 3 }

[[rung]]
name = "sgd"
title = "another optimiser"
on = "small"
change = { "optim.name" = "sgd", "optim.momentum" = 0.9, "optim.clip" = 1.0, "optim.schedule" = "constant" }
"""


def test_a_plan_describes_how_rungs_are_trained(machine, monkeypatch):
    """Rungs that are trained in the same way are together; a terminal without blocks has other characters."""
    monkeypatch.chdir(machine.folder)
    Path("trainings.toml").write_text(TRAININGS)
    command = ("plan", "npDigits", "--profile", "smoke", "--ladder", "trainings.toml", "-v")
    lines = machine.run(*command).stdout.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("Training of "))
    adamw = "AdamW with b1 = 0.9, b2 = 0.999 and eps = 1e-08; 60 steps on batches of 32; "
    decay = "a weight decay of 0.05 (recurrent parameters do not decay)"
    recurrent = "recurrent parameters at 0.5 times the learning rate"
    assert lines[first : first + 6] == [
        f"Training of cosine, small: {adamw}a linear warm-up from 1e-07 over the first 6 steps and a cosine decay to "
        f"1e-07; {recurrent}; {decay}.",
        "  ▁▂▃▅▆▇█████████████▇▇▇▇▇▇▆▆▆▆▅▅▅▅▅▄▄▄▄▃▃▃▃▃▂▂▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁",
        f"Training of wsd: {adamw}a linear warm-up from 1e-07 over the first 3 steps, a constant rate and a linear "
        f"decay over the last 12 steps to 1e-07; {recurrent}; {decay}.",
        "  ▁▃▆███████████████████████████████████████████████▇▇▆▅▅▄▃▃▂▁",
        "Training of sgd: stochastic gradient descent with momentum = 0.9 and nesterov = false; 60 steps on batches of "
        "32; a linear warm-up from 1e-07 over the first 6 steps and a constant rate; "
        f"{recurrent}; a weight decay of 0.05 as a part of the gradient (recurrent parameters do not decay); gradients "
        "clipped to a global norm of 1.",
        "  ▁▂▃▅▆▇██████████████████████████████████████████████████████",
    ]
    assert "Training of" not in machine.run(*command[:-1]).stdout
    monkeypatch.setattr(console, "can_show", lambda text: False)
    assert "  _.:=+*####" in machine.run(*command).stdout


def test_a_plan_says_which_rates_multiply_an_estimate(machine):
    sets = [f"optim.{name}" for name in ("name=prodigy", "lr=1", "recurrent_factor=1")]
    words = [word for value in sets for word in ("--set", value)]
    shown = machine.run("plan", "npDigits", "--profile", "smoke", "--rung", "diagonal", "-v", *words).stdout
    assert "diagonal 1 times its estimate." in shown
    assert "Prodigy with b1 = 0.9, b2 = 0.999, " in shown
    assert ", whose estimate of the learning rate the schedule multiplies; 60 steps on" in shown
    assert "peak factor of the learning rate" in shown
