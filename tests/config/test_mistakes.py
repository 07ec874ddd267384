"""Recipes, ladders and options with mistakes: each is refused with exit code 2, its place, the rule and a hint."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from lrurun import decoding, paths
from lrurun.config import planning
from lrurun.config.ladder import Ladder, load_ladder
from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.recipe import Recipe
from lrurun.config.recurrences import KINDS
from lrurun.config.schema import RunConfig
from lrurun.errors import LrurunError, UsageError
from tests.harness import programs
from tests.harness.machine import Machine
from tests.harness.optims import optim
from tests.harness.plans import LADDER, RECIPE, SMALL_RECIPE

Row = tuple[str, str, str, str]
"""A text of the document, another in its place (at the end, if the first is empty), how the error and the hint begin,
behind the name of the document."""

RECIPES: list[Row] = [
    ("depth = 1", "depht = 1", ", model.depht: unknown name", "did you mean 'model.depth'?"),
    ("[train]\n", "[trian]\n", ", trian: unknown name", "did you mean 'train'? known names here: task, about, seeds"),
    ('task = "', 'path = "x"\ntask = "', ", path: unknown name", "known names here: task, about, seeds, data, model"),
    ('task = "', 'missing = 1\ntask = "', ", missing: unknown name", "known names here: task, about"),
    ('task = "sDigits"\n', "", ", task: missing", "add task to the file"),
    ('"sDigits"', '"sDigit"', ", task: unknown task 'sDigit'", "did you mean 'sDigits'? "),
    ('"sDigits"', '"EnWik8"', ", task: unknown task 'EnWik8'", "tasks: sCIFAR, "),
    ('"sDigits"', '"s Digits"', ", task: expected a name of letters, digits, '.', '_' and '-', found", "change task"),
    ("batch = 8\n", "", ", train.batch: missing", "add batch to train"),
    ("\nlr = 0.01\n", "\nlr = 0.01.\n", ": not valid TOML: Expected newline or end of document", "correct the line"),
    ("\nlr = 0.01\n", "\nlr = { value = 0.01 }\n", ", optim.lr.value: unknown name", "did you mean 'optim.lr'?"),
    ("\nlr = 0.01\n", "\nlr = -0.01\n", ", optim.lr: expected a number > 0, found -0.01", "change optim.lr in r.toml"),
    ("width = 8", 'width = "8"', ', model.width: expected a whole number, found "8"', "change model.width in r.toml"),
    ("depth = 1", "depth = 1\nrecurrence.r_mni = 0.5", ", model.recurrence.r_mni: unknown name", "did you mean"),
    (
        "depth = 1", 'depth = 1\nrecurrence.kind = "dense"\n"recurrence.kind" = "dense"',
        ", model.recurrence.kind: set twice", "remove one of them",
    ),
    (
        "depth = 1", 'depth = 1\nfinal_norm = true\nnorm_place = "post"',
        ', model: final_norm = true needs norm_place = "pre"', "change one of the values named above",
    ),
    ("batch = 8", 'batch = 8\nprotocol = "paper"', ", train.protocol: sDigits has no protocol 'paper'", "protocols of"),
    ("r_max = 0.9", "r_max = 0.4", " [ladder.mine.rung.ring], model.recurrence: r_min must not be larger", "change"),
    (
        "mine.rung.ring.optim", "mine.rung.rnig.optim",
        " [ladder.mine.rung.rnig]: ladder mine has no rung 'rnig'", "did you mean 'ring'? rungs: dense, plane, ring",
    ),
    ("", "[ladder.l.rung.x.train]\nsteps = 20", ", ladder.l.rung.x.train: unknown name", "known names here: lr_publ"),
    ("", "[ladder.l.rung.x.model]\nwidht = 20", " [ladder.l.rung.x], model.widht: unknown name", "did you mean 'mode"),
    ("", '[ladder."a b"]\nlr_published = "x"', ", ladder: expected a name of letters, digits", "rename it"),
    (
        "[ladder.mine.rung.ring.optim]",
        '[ladder.mine.rung.ring]\nlr_published = "a"\nlr_chosen = "b"\n[ladder.mine.rung.ring.optim]',
        " [ladder.mine.rung.ring]: has both lr_published and lr_chosen", "remove one",
    ),
    ("", "[profile.a.train]\nstep = 20", " [profile.a.train], train.step: unknown name", "did you mean 'train.steps'?"),
    ("", "[profile.a.ladder.l.rung.x.optim]\nlrate = 1", " [profile.a.ladder.l.rung.x], optim.lrate: unknown", "did "),
    ("", "[profile.a]\nseeds = 0", ", profile.a.seeds: expected a whole number >= 1, found 0", "change"),
    ("[tune.grid]", "[tune]\nfond = 1\n[tune.grid]", ", tune.fond: unknown name", "did you mean 'found'? "),
    ("[tune.grid]", "[tune]\nseeds = 0\n[tune.grid]", ", tune.seeds: expected a whole number >= 1", "change"),
    ("[tune.grid]", "[tune]\nseeds = 101\n[tune.grid]", ", tune.seeds: expected a whole number <= 100", "change"),
    ('[tune.grid]\n"optim.lr" = [0.01, 0.02]', '[tune]\nfound = "x"', " [tune]: has neither a grid nor", "add [tune."),
    ("", '[tune.results.x]\na = "two"', ', tune.results.x.a: expected a number, found "two"', "change tune.results"),
    ("", "[tune.results.x]\na = nan", ", tune.results.x.a: expected a finite number, found nan", "change tune.results"),
    ("", "[tune.results.x]\na = 2001-01-01", ", tune.results.x.a: expected a number, found 2001-01-01", "change tune."),
    ("[0.01, 0.02]", "[]", ", tune.grid.optim.lr: expected a list of length >= 1, found an empty list", "change tune."),
    ("[0.01, 0.02]", "[0.1, 0.1]", " [tune.grid], optim.lr: 0.1 is listed twice", "remove one of them"),
    ("[0.01, 0.02]", '[1]\n"optim.l_r" = [1]', " [tune.grid], optim.l_r: unknown name", "did you mean 'optim.lr'?"),
    (
        "[0.01, 0.02]", '[1]\n"execution.threads" = [1]',
        " [tune.grid], execution.threads: cannot be set here", "settings that can: model.*, optim.*, train.*",
    ),
    ("", '[ladder.x.rung.y.tune]\n"x.y" = [1]', " [ladder.x.rung.y.tune], x.y: unknown name", "paths begin with model"),
    ("", '[ours]\n"optim.rl" = "x"', " [ours], optim.rl: unknown name", "did you mean 'optim.lr'?"),
    ("", "[ours]\nlr = 1", ", ours.lr: expected a string, found 1", "change ours.lr in r.toml"),
]  # fmt: skip

TUNED: list[Row] = [  # with --tune
    ("[0.01, 0.02]", "[0.01, -1]", " [tune.grid], optim.lr: expected a number > 0, found -1", "change optim.lr"),
    ("[0.01, 0.02]", "[0.01, nan]", " [tune.grid], optim.lr: expected a finite number, found nan", "change optim.lr"),
    ("[0.01, 0.02]", "[0.01, 1e-9]", " [tune.grid], optim: floor must not be larger than lr, found floor", "change"),
    ('[tune.grid]\n"optim.lr" = [0.01, 0.02]\n', "", ": has no grid to tune over", "add a table [tune.grid], or omit"),
    ("", '[ladder.mine.rung.ring.tune]\n"model.recurrence.rmax" = [1]',
     " [ladder.mine.rung.ring.tune], model.recurrence.rmax: unknown name", "did you mean 'model.recurrence.r_max'?"),
    ("", '[ladder.mine.rung.ring.tune]\n"optim.lr" = [1, 1]',
     " [ladder.mine.rung.ring.tune], optim.lr: 1 is listed twice", "remove one of them"),
    ("", '[ladder.mine.rung.ring.tune]\n"optim.lr" = [0.1, 20.0]', " [ladder.mine.rung.ring.tune], optim.lr: ex", "ch"),
    ("", '[ladder.mine.rung.ring.tune]\n"optim.lr" = []',
     ", ladder.mine.rung.ring.tune.optim.lr: expected a list of length >= 1", "change ladder.mine.rung.ring.tune"),
]  # fmt: skip

NORM = 'change = { "model.recurrence.normalize" = true }'
CLAIM = '\n[[claim]]\ntext = "t"\nsource = "s"\nrung = "plane"\nthan = "dense"\n'
CHANCE = CLAIM.replace('than = "dense"', 'kind = "at-chance"')
SPEED = (
    '\n[[speed]]\nsystem = "R"\nrung = "dense"\nsource = "s"\ndevice = "d"\nsteps_per_second = { A = 2.0, B = 0.5 }\n'
)
TITLE = 'name = "norm"\ntitle = "gamma"'
SCORES = '\n[[rung.published.B]]\nsource = "s"\nstderr = 0.5\n[[rung.published.A]]\nsource = "s"\nstderr = -69.9\n'

LADDERS: list[Row] = [
    (NORM, "", ", rung norm: declares no change", "say what it changes: change = {"),
    ('"model.recurrence.normalize"', '"model.recurence.normalize"', ", rung norm, model.recurence.norm", "did you"),
    (NORM, 'change = { "model.recurrence.kind" = "gru", "model.recurrence.dtmax" = 5 }',
     ", rung norm, model.recurrence.dtmax: unknown name", "did you mean 'model.recurrence.t_max'?"),
    (NORM, 'tunes = ["model.rmin"]', ", rung norm, model.rmin: unknown name", "did you mean 'model.norm'?"),
    (NORM, 'change = { "execution.threads" = 2 }', ", rung norm, execution.threads: cannot be set here",
     "settings that can: model.*, optim.*, train.*, settings.*"),
    ('name = "norm"', 'name = "dense"', ", rung dense: there are two rungs with this name", "rename one of them"),
    (TITLE, 'name = "norm"\ntitle = 2', ", rung[norm].title: expected a string, found 2", "change rung[norm].title"),
    (TITLE, 'name = "norm"\ntitel = "x"', ", rung[norm].titel: unknown name", "did you mean 'title'? known names here"),
    ('"norm"', '"no rm"', ", rung[no rm].name: expected a name of letters, digits", "change rung[no rm].name in"),
    ('title = "mine"', "title = [1]", ", title: expected a string, found a list", "change title in l.toml"),
    ('title = "mine"', 'title = "x"\nimport = ["a.py"]', ", import: unknown name", "known names here: name, title,"),
    (LADDER.partition("[[rung]]")[2], "", ", rung[0].name: missing", "add name to rung[0]"),
    (LADDER[LADDER.index("[[rung]]"):], "", ": a ladder needs at least one [[rung]]", "add one: name, title, change"),
    (TITLE, 'on = "rign"\n' + TITLE, ", rung norm, on: unknown rung 'rign'",
     "did you mean 'ring'? rungs before it: dense, plane, ring"),
    (TITLE, 'on = "norm"\n' + TITLE, ", rung norm, on: a rung cannot change itself", "rungs before it: dense, plane,"),
    ('name = "dense"', 'on = "norm"\nname = "dense"', ", rung dense, on: norm does not come before it", "there are no"),
    (TITLE, 'on = ""\n' + TITLE, ", rung[norm].on: expected a name of letters, digits", "change rung[norm].on in"),
    (TITLE, 'on = "dense"\nroot = true\n' + TITLE, ", rung norm: has root = true and on = 'dense'", "remove one of"),
    (TITLE, 'takes = "ssn/lru"\n' + TITLE, ", rung norm, takes: unknown ladder 'ssn'", "did you mean 'ssm'?"),
    (TITLE, 'takes = "ssm/lrv"\n' + TITLE, ", rung norm, takes: ladder ssm has no rung 'lrv'", "did you mean 'lru'?"),
    (TITLE, 'takes = "lru"\n' + TITLE, ", rung[norm].takes: expected a rung with its ladder", "change"),
    (TITLE, 'takes = "mine/norm"\n' + TITLE, ", rung norm, takes: mine/norm takes its own values", "remove one"),
    (TITLE, 'resets = ["optim.rate"]\n' + TITLE, ", rung norm, resets, optim.rate: unknown name", "did you mean"),
    (TITLE, 'resets = ["execution.threads"]\n' + TITLE, ", rung norm, resets, execution.threads: cannot be set here",
     "settings that can: model.*, optim.*, train.*, settings.*"),
    (TITLE, 'resets = ["optim.clip"]\n' + TITLE, ", rung norm, resets, optim.clip: no rung before it changes this",
     "remove it"),
    (TITLE, 'resets = ["model.recurrence.normalize"]\n' + TITLE,
     ", rung norm, resets, model.recurrence.normalize: set in `change` too", "remove one of them"),
    (TITLE, 'resets = ["model.recurrence.kind"]\n' + TITLE,
     ", rung norm, resets, model.recurrence.kind: decides what other settings there are", "write its value into"),
    (TITLE, 'resets = "optim.clip"\n' + TITLE, ', rung[norm].resets: expected a list, found "optim.clip"', "change"),
    (TITLE, 'resets = ["settings.lr"]\n' + TITLE, ", rung norm, resets, settings.lr: no rung before it", "remove it"),
    (TITLE, "lr = 0.0\n" + TITLE, ", rung[norm].lr: expected a number > 0, found 0.0", "change rung[norm].lr in"),
    (TITLE, 'lr = "0.1"\n' + TITLE, ", rung[norm].lr: expected a number, found \"0.1\"", "change rung[norm].lr in"),
    (TITLE, 'lr_published = "Table 1"\n' + TITLE, ", rung norm, lr_published: says where lr comes from", "add lr = "),
    (TITLE, 'lr_chosen = "a guess"\n' + TITLE, ", rung norm, lr_chosen: says where lr comes from", "add lr = RATE"),
    (TITLE, 'lr = 0.1\nlr_published = "a"\nlr_chosen = "b"\n' + TITLE,
     ", rung norm: has both lr_published and lr_chosen", "remove one of them"),
    (NORM, 'lr = 0.1\nchange = { "optim.lr" = 0.2 }', ", rung norm, optim.lr: set in `lr` and in `change`", "keep it"),
    (NORM, "lr = 0.1", ", rung norm: declares no change", "say what it changes: change = {"),
    (TITLE, 'tune = { "optim.rate" = [0.1] }\n' + TITLE, ", rung norm, tune, optim.rate: unknown name", "did you mean"),
    (TITLE, 'tune = { "execution.threads" = [1] }\n' + TITLE,
     ", rung norm, tune, execution.threads: cannot be set here", "settings that can: model.*, optim.*"),
    (TITLE, 'tune = { "optim.lr" = [] }\n' + TITLE,
     ", rung[norm].tune.optim.lr: expected a list of length >= 1", "change rung[norm].tune"),
    (TITLE, 'tune = { "optim.lr" = 0.1 }\n' + TITLE, ", rung[norm].tune.optim.lr: expected a list, found", "change"),
    (TITLE, 'tune = { "optim.lr" = { low = 0.1, high = 1 } }\n' + TITLE,
     ", rung[norm].tune.optim.lr: expected a list, found a table", "change rung[norm].tune"),
    (TITLE, 'tune = { "optim.lr" = [0.1, 0.2, 0.1] }\n' + TITLE, ", rung norm, tune, optim.lr: 0.1 is listed twice",
     "remove one of them"),
    (TITLE, 'tune = { "optim.lr" = [0.1, -0.2] }\n' + TITLE, ", rung norm, tune, optim.lr: expected a number > 0",
     "change optim.lr in l.toml, rung norm, tune"),
    (TITLE, 'tune = { "optim.schedule" = ["cosin"] }\n' + TITLE, ", rung norm, tune, optim.schedule: expected one of",
     "did you mean"),
    ("", SCORES, ", rung[norm].published.A[0].stderr: expected a number >= 0, found -69.9", "change"),
    ("", CLAIM.replace('"dense"', '"dnese"'), ", claim 't': unknown rung 'dnese'", "did you mean 'dense'? rungs:"),
    ("", CLAIM + 'kind = "equal"', ", claim 't': kind = \"equal\" needs a margin", "add one, as in margin = 0.005"),
    ("", CLAIM + 'kind = "no-worse"', ", claim 't': kind = \"no-worse\" needs a margin", "add one, as in margin ="),
    ("", CLAIM + "margin = 0.01", ", claim 't': kind = \"better\" has no margin", "remove it, or set kind = "),
    ("", CLAIM + 'kind = "same"', ", claim[0].kind: expected one of above-chance, as-fast", "change claim[0].kind in"),
    ("", CLAIM + 'kind = "faster"\nmargin = 0.1', ", claim 't': kind = \"faster\" has no margin", "remove it"),
    ("", CLAIM + 'kind = "at-chance"\nmargin = 0.1',
     ", claim 't': kind = \"at-chance\" compares with chance, not with dense", "remove `than`"),
    ("", CHANCE, ", claim 't': kind = \"at-chance\" needs a margin", "add one, as in margin = 0.005"),
    ("", CLAIM.replace('than = "dense"', ""), ", claim 't': kind = \"better\" needs another rung", "name it: than = "),
    ("", CLAIM + 'kind = "equal"\nmargin = 0.1\nmargins = { B = 0.2 }\ntasks = ["A"]',
     ", claim 't', margins: 'B' is not among the tasks of the claim", "its tasks: A"),
    ("", CLAIM + 'kind = "no-worse"\nmargin = 0', ", claim[0].margin: expected a number > 0, found 0", "change"),
    ("", CLAIM + "min_length = 0", ", claim[0].min_length: expected a whole number >= 1, found 0", "change"),
    ("", CLAIM + "depth = 1.5", ", claim[0].depth: expected a whole number, found 1.5", "change claim[0].depth in"),
    ("", CLAIM + 'kind = "faster"\ndepth = 1', ", claim 't': kind = \"faster\" has no scope", "remove `min_length`"),
    ("", CLAIM + 'metric = "accuracy@longest"', ", claim 't', metric: sDigits has no further tests", "leave out"),
    ("", SPEED.replace('"dense"', '"dnese"'), ", speed of 'R': unknown rung 'dnese'", "did you mean 'dense'? rungs:"),
    ("", SPEED + SPEED, ", speed of 'R': A is listed twice", "remove one of them"),
    ("", SPEED.replace("B = 0.5", "B = 0"), ", speed[0].steps_per_second.B: expected a number > 0, found 0", "change"),
    ("", SPEED.replace("{ A = 2.0, B = 0.5 }", "{}"), ", speed of 'R': needs steps_per_second or relative", "give"),
    ("", SPEED + "relative_time = { A = 6.3 }\n", ", speed of 'R': needs steps_per_second or relative_time", "give"),
    ("", SPEED.replace('device = "d"\n', ""), ", speed[0].device: missing", "add device to speed[0]"),
    ("", SPEED.replace("system", "sytsem"), ", speed[0].sytsem: unknown name", "did you mean 'system'? known names"),
    ("", CLAIM + 'tasks = ["Text", "Txet"]', ", claim 't', tasks: unknown task 'Txet'", "did you mean 'Text'? it is"),
    ("", CLAIM + 'kind = "equal"\nmargin = 0.1\nmargins = { Txet = 0.2 }', ", claim 't', margins: unknown task", "did"),
    ("", '\n[[rung.published.Txet]]\nsource = "s"\nvalue = 0.5\n', ", rung norm, published: unknown task", "did"),
    ("", SPEED.replace("A =", "Text =").replace("B =", "Txet ="),
     ", speed of 'R', steps_per_second: unknown task 'Txet'", "did you mean 'Text'?"),
]  # fmt: skip

WIDE = '"settings.block.wide" = true'
FILES = 'files = ["toy.py"]'
PROGRAMS: list[Row] = [
    (WIDE, '"settings.block.wid" = true', ", rung wide, settings.block.wid: no setting of this program", "did you"),
    (WIDE, WIDE + ' }\nlr = 0.1\ntune = { "settings.lr" = [0.1]', ", rung wide, lr, optim.lr: no setting of this",
     "did you mean 'settings.lr'?"),
    (WIDE, WIDE + ' }\ntune = { "settings.lrr" = [0.1]', ", rung wide, tune, settings.lrr: no setting of this program",
     "did you mean 'settings.lr'?"),
    (WIDE, '"settings.block.wide" = 1', ", rung wide, settings.block.wide: expected true or false, like", "change"),
    (WIDE, '"settings.epochs" = 4.5', ", rung wide, settings.epochs: expected a whole number, like 4 in the recipe",
     "write 4.0 in the recipe's [settings] if it may have fractions"),
    (WIDE, '"settings.name" = 3', ", rung wide, settings.name: expected a string, like plain text in", "change"),
    (WIDE, '"model.depth" = 2', ", rung wide, model.depth: no setting of this program", "its settings: settings.lr,"),
    ('"toy.py"]\nfiles', '"toy.py", "{settings.eposch}"]\nfiles',
     " [program], command[2]: unknown placeholder {settings.eposch}", "did you mean 'settings.epochs'?"),
    (FILES, 'files = ["toy.pi"]', " [program], files: there is no file 'toy.pi' in .", "did you mean 'toy.py'?"),
    (FILES, 'files = ["."]', " [program], files: there is no file '.' in ", "for the files of a folder: **/*.py"),
    (FILES, 'file = ["toy.py"]', ", program.file: unknown name", "did you mean 'files'?"),
    ('"settings.epochs"', '"settings.name"', " [program], steps: settings.name is not a whole number", "name a"),
    ('"val/accuracy"', '"accuracy"', ', program.metric: expected a name such as "val/accuracy", found', "change"),
    (FILES, "read.'val/x' = 'a('", " [program], read.val/x: not a regular expression of Python: missing ), ", "change"),
    (FILES, "read.'val/x' = 'a'", " [program], read.val/x: expected one group, around the number, found 0", "as in"),
    (FILES, "read.'val/x' = '(a)(b)'", " [program], read.val/x: expected one group, around the number, found 2", "as"),
    (FILES, "read.'val/x' = 3", ", program.read.val/x: expected a string, found 3", ""),
    (FILES, "read = 'a(b)'", ", program.read: expected a table, found", ""),
    (FILES, "read.'val//x' = '(a)'", " [program], read: 'val//x' is no name of a metric", "as in read = {"),
    (FILES, "read.'machine/x' = '(a)'", " [program], read: 'machine/x' is no name of a metric", "as in read = {"),
    (FILES, "read.step = '(a)'", " [program], read: has the step alone", "as in read = {"),
    ("chance = 0.1", "chance = 10", ' [program], chance: expected a fraction, because unit = "%", found 10.0', "write"),
    (FILES, "test_items = 0", ", program.test_items: expected a whole number >= 1, found 0", "change"),
    (FILES, 'test_items = "400"', ', program.test_items: expected a whole number, found "400"', "change"),
    (FILES, "test_item = 400", ", program.test_item: unknown name", "did you mean 'test_items'?"),
    (FILES, 'share = "yes"', ', program.share: expected true or false, found "yes"', "change"),
    ("epochs = 4", "epochs = 4\nseed = 1", ", settings.seed: lrurun sets it", "remove it"),
    ("lr = 0.01", "lr = nan", ", settings.lr: expected a string, a number, true or false, or a list", "change"),
    ("lr = 0.01", "lr = 1979-05-27", ", settings.lr: expected a string, a number, true or false, or a list", "change"),
    ("[settings]", "[model]\ndepth = 3\n[settings]",
     " [model]: is for lrurun's own models, and this recipe has a [program]", "write what the program takes"),
    ('task = "toy"', 'task = "sDigits"', ", task: 'sDigits' is a task of lrurun, and this recipe has a", "choose"),
    ('"settings.lr" = [0.01', '"settings.le" = [0.01', " [tune.grid], settings.le: no setting of this program", ""),
    ('than = "narrow"', 'metric = "f1"\nthan = "narrow"',
     ", claim 'wide blocks are better', metric: toy has no metric 'f1'", "metrics of toy: accuracy"),
    ('than = "narrow"', "min_length = 5", ", claim 'wide blocks are better'", ""),
]  # fmt: skip

EXTENDED: list[Row] = [  # a recipe, a file "shared/x.toml"
    ('extends = "y.toml"', "", "r.toml, extends: there is no file y.toml", "its path begins in the folder of r.toml"),
    ("extends = 3", "", "r.toml, extends: expected the path of a TOML file, found 3", 'as in extends = "shared/t'),
    ('extends = "shared/x.toml"', 'extends = "z.toml"', "shared/x.toml, extends: r.toml extends this file", "only a"),
    ('extends = "shared/x.toml"', "x = ", "shared/x.toml: not valid TOML: Invalid value", "correct the line named"),
    ('extends = "shared/x.toml"', 'seeds = "two"\n' + RECIPE.partition("seeds = 2")[2],
     "shared/x.toml, seeds: expected a whole number", "change seeds in shared/x.toml"),
]  # fmt: skip

OF_PROGRAMS = {
    "--set settings.epoch=3": ("--set settings.epoch: no setting of this program", "did you mean 'settings.epochs'?"),
    "--set settings.epochs=true": ("--set settings.epochs: expected a whole number, like 4 in the recipe", ""),
    "--set optim.lr=3": ("--set optim.lr: no setting of this program", "did you mean 'settings.lr'?"),
    "--sweep settings.lrs=1,2": ("--sweep settings.lrs: no setting of this program", "did you mean 'settings.lr'?"),
    "--pack 2": ("--pack: is for lrurun's own models, of which one process can train several seeds", ""),
    "--ladder lru": ("ablations/lru.toml, rung tanh-rnn, model.recurrence.kind: no setting of this program", ""),
}
OF_MODELS = {
    "--profile smal": ("r.toml: unknown profile 'smal'", "did you mean 'small'? profiles: small"),
    "--tune --set optim.lr=0.5": ("--tune: --set fixes every setting in the grid: optim.lr", "omit one of them"),
    "--ladder toy.toml": ("toy.toml, rung wide, settings.block.wide: ", ""),
    "--set code.recurrence=x": ("--set code.recurrence: unknown name", ""),
}


def rows(table: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("old", "new", "error", "hint"), [pytest.param(*row, id=row[2]) for row in table])


def edited(text: str, old: str, new: str) -> str:
    if not old:
        return f"{text}\n{new}"
    assert old in text, old
    return text.replace(old, new, 1)


def refused(machine: Machine, *command: str) -> tuple[str, str]:
    """Error and hint of a command that is refused in two lines, and writes nothing."""
    error, hint, *others = [*machine.refused(*command).splitlines(), ""]
    assert others in ([], [""]), others
    return error.removeprefix("error: "), hint.removeprefix("hint: ")


def expect(found: tuple[str, str], error: str, hint: str) -> None:
    assert found[0].startswith(error), found
    assert found[1].startswith(hint), found


def write(machine: Machine, **texts: str) -> None:
    for name, text in {"r": RECIPE, "l": LADDER, **texts}.items():
        (machine.folder / f"{name}.toml").write_text(text)


PLAN = ("plan", "r.toml", "--ladder", "l.toml")


@rows(RECIPES)
def test_a_wrong_recipe_is_refused(machine: Machine, old: str, new: str, error: str, hint: str) -> None:
    write(machine, r=edited(RECIPE, old, new))
    expect(refused(machine, *PLAN), f"r.toml{error}", hint)


@rows(TUNED)
def test_a_wrong_grid_is_refused_before_anything_is_tuned(
    machine: Machine, old: str, new: str, error: str, hint: str
) -> None:
    write(machine, r=edited(RECIPE, old, new))
    expect(refused(machine, *PLAN, "--tune"), f"r.toml{error}", hint)


@rows(LADDERS)
def test_a_wrong_ladder_is_refused(machine: Machine, old: str, new: str, error: str, hint: str) -> None:
    write(machine, l=edited(LADDER, old, new))
    expect(refused(machine, *PLAN), f"l.toml{error}", hint)


@rows(PROGRAMS)
def test_a_wrong_recipe_with_a_program_is_refused(machine: Machine, old: str, new: str, error: str, hint: str) -> None:
    programs.write(machine.folder, (old, new))
    expect(refused(machine, "plan", "toy.toml"), f"toy.toml{error}", hint)


@pytest.mark.parametrize(("recipe", "shared", "error", "hint"), EXTENDED)
def test_errors_name_the_file_that_has_the_mistake(
    machine: Machine, recipe: str, shared: str, error: str, hint: str
) -> None:
    write(machine, r=recipe)
    (machine.folder / "shared").mkdir()
    (machine.folder / "shared/x.toml").write_text(shared)
    expect(refused(machine, *PLAN), error, hint)


@pytest.mark.parametrize("options", [*OF_PROGRAMS, *OF_MODELS])
def test_options_that_do_not_fit_the_documents_are_refused(machine: Machine, options: str) -> None:
    programs.write(machine.folder)
    write(machine)
    of_program = options in OF_PROGRAMS
    found = refused(machine, *(("ladder", "toy.toml") if of_program else PLAN), *options.split())
    expect(found, *(OF_PROGRAMS | OF_MODELS)[options])


def test_the_documents_without_mistakes_are_accepted(machine: Machine) -> None:
    write(machine)
    programs.write(machine.folder)
    for command in (PLAN, (*PLAN, "--tune"), (*PLAN, "--profile", "small"), ("plan", "toy.toml")):
        machine.run(*command)
    others = [SPEED.replace(old, new) for old, new in (('"s"', '"t"'), ('"d"', '"e"'), ('rung = "dense"\n', ""))]
    speeds = "".join([SPEED, *others]).replace("A =", "Text =").replace("B =", "PathX =")
    write(machine, l=LADDER + speeds)
    machine.run(*PLAN)  # speeds of other sources, devices and systems are no repetition


def test_a_task_that_only_a_paper_has_is_declared(machine: Machine) -> None:
    ladder, claim = LADDER[: LADDER.index('[[rung]]\nname = "ring"')], CLAIM + 'tasks = ["Txet"]'
    write(machine, r=SMALL_RECIPE, l=ladder + claim)
    assert (
        "--load FILE if it is a task of your own, other_tasks = ['Txet'] if only a paper has it"
        in refused(machine, *PLAN)[1]
    )
    assert "unknown task 'Txet'; did you mean" in machine.run("check", "ladder", "l.toml", code=2).stdout
    assert load_ladder(str(machine.folder / "l.toml"), imports=False).name == "mine"  # a plug-in may not be loaded
    (machine.folder / "recipes").mkdir()
    (machine.folder / "recipes" / "Txet.toml").write_text("")
    machine.run(*PLAN)  # a task of the user's own, which this command does not need
    (machine.folder / "recipes" / "Txet.toml").unlink()
    write(machine, r=SMALL_RECIPE, l='other_tasks = ["Txet"]' + ladder + claim)
    machine.run("check", "ladder", "l.toml")


def test_everything_that_is_wrong_is_listed_in_one_pass(machine: Machine, golden: Callable[[str, str], None]) -> None:
    """What `check` prints of documents with several mistakes."""
    recipe = RECIPE
    for old, new in (
        ("seeds = 2", "seeds = 0"),
        ("depth = 1", "depth = 1\ndeph = 1"),
        ("\nlr = 0.01", "\nlr = -0.01"),
        ("batch = 8\n", ""),
        ("r_max = 0.9", 'r_max = "0.9"'),
        ('"optim.lr" = [0.01, 0.02]', '"optim.lr" = [0.01, 20.0]'),
    ):
        recipe = edited(recipe, old, new)
    claims = CLAIM.replace('"dense"', '"dnese"') + CLAIM.replace('"t"', '"u"') + "margin = 0.1\n"
    documents = [
        ("recipe", {"r": recipe}),
        ("recipe", {"r": edited(RECIPE, "[optim]", "[optimiser]")}),
        ("recipe", {"r": edited(RECIPE, "depth = 1", 'depth = 1\nfinal_norm = true\nnorm_place = "post"')}),
        ("ladder", {"l": edited(LADDER, TITLE, 'on = "third"\n' + TITLE) + claims}),
        ("ladder", {"l": edited(LADDER, TITLE, TITLE + "\ntitel = 2") + claims + "depth = 0\n"}),
    ]
    shown = []
    for kind, texts in documents:
        write(machine, **texts)
        words = ("check", kind, *(("r.toml", "--ladder", "l.toml") if kind == "recipe" else ("l.toml",)))
        done = machine.run(*words, code=2)
        findings = json.loads(machine.run(*words, "--json", code=2).stdout)["findings"]
        failed = [one["detail"] for one in findings if not one["passed"]]
        assert kind == "ladder" or f" {len(failed)} fault" in done.stderr
        assert all(one in re.sub(r"\s+", " ", done.stdout) for one in failed)
        shown.append(f"$ lrurun {' '.join(words)}\n{done.stdout}{done.stderr}")
    golden("mistakes.txt", "\n".join(shown))


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b'name = "x\ntitle = 1\n', "not valid TOML: Illegal character", "correct the line named above"),
        (b"x = " + b"9" * 5000, "not valid TOML: Exceeds the limit", "correct the line named above"),
        (b"x = " + b"[" * 100_000, "not valid TOML: nested too deeply", "use fewer levels of tables"),
        (b'x = "\xff"', "not valid TOML: not UTF-8 text (invalid start byte)", "save the file as UTF-8"),
    ],
)
def test_invalid_toml_is_reported_with_file_and_line(machine: Machine, content: bytes, message: str, hint: str) -> None:
    write(machine)
    (machine.folder / "l.toml").write_bytes(content)
    expect(refused(machine, *PLAN), f"l.toml: {message}", hint)


def test_a_file_that_cannot_be_read_is_no_usage_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    path = tmp_path / "l.toml"
    path.write_text(LADDER)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(LrurunError, match=r"l\.toml: Permission denied") as caught:
        load_ladder(str(path))
    assert caught.value.exit_code == 1


HOSTILE = ["", "x - at `$.model`", "missing", "a.b", "[0]", "`", "\x1b[31m", "é" * 300]


@pytest.mark.parametrize("name", HOSTILE)
def test_any_key_anywhere_is_an_error_of_the_file_never_of_the_program(name: str) -> None:
    for section in (None, "about", "model", "optim", "rung", "profile", "tune", "ours", "seeds"):
        for value in (1, "x", [], {}, {"x": {}}, {name: [{name: 1}]}):
            table = tomllib.loads(RECIPE)
            inner = table if section in (None, "seeds") else table.setdefault(section, {})
            inner[name] = value
            with contextlib.suppress(UsageError):  # some places take any name
                decoding.convert(table, Recipe, "r.toml")
    with pytest.raises(UsageError) as caught:
        decoding.convert(tomllib.loads(RECIPE) | {name: 1}, Recipe, "r.toml")
    assert caught.value.message == f"r.toml, {name or chr(34) * 2}: unknown name"


def replaced(table: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy in which the value at `path` is another one, or is left out if that is None."""
    first, *rest = path
    other = dict(table) if isinstance(table, dict) else list(table)
    if rest or value is not None:
        other[first] = replaced(table[first], tuple(rest), value) if rest else value
    else:
        del other[first]
    return other


def paths_of(table: Any) -> Iterator[tuple[Any, ...]]:
    """Every key and index in a table, from its top."""
    for key in table if isinstance(table, dict) else range(len(table)):
        yield (key,)
        if isinstance(table[key], dict | list):
            yield from ((key, *path) for path in paths_of(table[key]))


def documents() -> list[tuple[dict[str, Any], type]]:
    config = msgspec.to_builtins(planning.make("sDigits").rungs[-1].config)
    settings: Any = KINDS[config["model"]["recurrence"]["kind"]].settings
    optims = [optim(name) for name in OPTIMIZERS]
    ladder = decoding.load_toml(paths.packaged("ablations") / "lru.toml")
    return [
        *((config | {"optim": msgspec.to_builtins(optim)}, RunConfig[settings, type(optim)]) for optim in optims),
        (tomllib.loads(RECIPE), Recipe),
        ({**ladder, "rung": ladder["rung"][-1:], "claim": ladder["claim"][-1:], "speed": ladder["speed"][:1]}, Ladder),
    ]


def test_examining_agrees_with_msgspec_and_finds_two_faults_at_once() -> None:
    """Over documents in which each value is replaced by each of several others, or left out."""
    none = {"nothing": decoding.missing("", "x")}  # so that valid tables are walked through too
    for table, type_ in documents():
        for path in paths_of(table):
            for value in (None, -3, "x y", [], {"x": 1}):
                other = replaced(table, path, value)
                got, faults = decoding.examine(other, type_, "r", known_faults=none)
                try:
                    assert (got, faults) == (msgspec.convert(other, type_, strict=True), [])
                except msgspec.ValidationError:
                    assert faults, (path, value)
                    second = decoding.examine({**other, "x y": 3}, type_, "r")[1]
                    assert {(one.path, one.rule) for one in second} - {(one.path, one.rule) for one in faults} == {
                        ("x y", decoding.UNKNOWN_NAME)
                    }, (path, value)
                    assert len(second) == len(faults) + 1


class Mixed(msgspec.Struct):
    amount: Literal["auto"] | int


@pytest.mark.parametrize("amount", ["auto", 3, 1.5, "automatic", True])
def test_a_setting_is_one_of_some_words_or_a_number(amount: Any) -> None:
    table = {"amount": amount}
    value, faults = decoding.examine(table, Mixed, "r")
    try:
        assert (value, faults) == (msgspec.convert(table, Mixed, strict=True), [])
    except msgspec.ValidationError:
        assert [fault.path for fault in faults] == ["amount"]
        assert "'auto' or a whole number" in faults[0].rule
