"""The parts and the pictures of docs/map.md, as commands show them on the ledger of the map."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.docs import kept, table
from tests.harness.machine import Machine

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = DOCS / "images"
LADDERS = ("lru", "selective")
VERDICTS = ("helps", "hurts", "undecided")
JUDGED = ("supported", "contradicted", "undecided")
TUNED = ("--profile", "map", "--tune")
RADIUS = ("diagonal-dense-radius", "diagonal")
"""The rungs of the ladder controls that take the step `diagonal` apart: form, then initial spectral radius."""
SELECTION = ("SelectiveCopy", "--ladder", "mamba", "--profile", "tokens-4")
BUDGETS = (400, 800, 1600, 3200, 6400, 12800)
"""Steps of training."""
PAIR = {"b-and-c": "B and C", "low-rank": "Delta"}
SECONDS = """
    select l.name, l.task, sum(max(a.heartbeat_at, a.seen_at) - a.started_at)
    from ladders l join ladder_runs m on m.ladder = l.id join attempts a on a.run = m.run
    where l.profile = 'map' group by l.name, l.task
"""
HOURS = "select sum(max(heartbeat_at, seen_at) - started_at), count(distinct run), count(*) from attempts"

OF_LADDER = "where ladder = 'lru' and profile = 'map' group by task"
TRIED = f"select task, count(distinct optim_lr), group_concat(distinct seed) from trials {OF_LADDER}"
TRAINED = f"""
    select task, group_concat(distinct seed), min(model_depth), max(model_depth), min(model_width), max(model_width),
    min(steps), max(steps) from results {OF_LADDER}
"""


@cache
def shown() -> dict[str, Any]:
    """What commands print about the ledger, as JSON, and the pictures."""
    with kept.merged("map") as machine:
        by = ("--by", "train.steps", "--metric", "test/exact")
        pictures = {
            "map.svg": ("--kind", "map", *TUNED),
            "map-selective.svg": ("--kind", "map", "--ladder", "selective", *TUNED),
            "budgets.svg": (*SELECTION, *by),
        }
        for name, drawn in pictures.items():
            machine.run("plot", *drawn, "--plain", "--width", "page", "--out", name)
        budgets = {steps: ("--set", f"train.steps={steps}") for steps in BUDGETS}
        ladders = (*LADDERS, "controls")
        return {
            **{ladder: machine.json("report", "--all", "--ladder", ladder, *TUNED) for ladder in ladders},
            "claims": machine.json("claims", "--ladder", "lru")["claims"],
            "seconds": machine.json("query", SECONDS),
            "hours": machine.json("query", HOURS),
            "tried": machine.json("query", TRIED),
            "trained": machine.json("query", TRAINED),
            "exact": _groups(machine, "train", "train.steps", "test/exact"),
            "by_rate": _groups(machine, "tune", "optim.lr", "val/accuracy"),
            "selection": {steps: machine.json("report", *SELECTION, *at) for steps, at in budgets.items()},
            "pictures": {PICTURES / name: (machine.folder / name).read_text() for name in pictures},
        }


def _groups(machine: Machine, stage: str, setting: str, result: str) -> dict[tuple[str, float], float]:
    """The mean of a result of a rung of the ladder mamba at a value of a setting."""
    where = f"profile=tokens-4 and stage={stage}"
    by = ("--by", f"rung,{setting}", "--metric", result)
    groups = machine.json("runs", "--ladder", "mamba", "--where", where, *by)["groups"]
    return {(group["rung"], group[setting]): group["mean"] for group in groups}


def commands() -> list[list[str]]:
    """The commands that trained the runs, as the page has them, with every TASK; each without its `lrurun ladder`."""
    text = (DOCS / "map.md").read_text().replace("\\\n", " ")
    trained = []
    for line in dict.fromkeys(line for line in text.splitlines() if line.startswith("lrurun ladder ")):
        task, *options = line.split()[2:]
        ladder = options[options.index("--ladder") + 1] if "--ladder" in options else "lru"
        tasks = shown()[ladder]["tasks"] if task == "TASK" else [task]
        trained += [[name, *options] for name in tasks]
    return trained


def texts(picture: str) -> list[str]:
    """The texts of a picture, which Matplotlib names in comments beside their curves."""
    return re.findall(r"<!-- (.*?) -->", picture)


def lines(picture: str) -> list[float]:
    """The coordinates of all lines of a picture, in points, without those of letters."""
    picture = re.sub(r"<defs>.*?</defs>", "", picture, flags=re.S)
    return [
        float(number) for path in re.findall(r' d="(.*?)"', picture, re.S) for number in re.findall(r"-?[\d.]+", path)
    ]


def runs() -> str:
    """How rates were chosen, and what was then trained."""
    tried = {task: (rates, set(seeds.split(","))) for task, rates, seeds in shown()["tried"]["rows"]}
    trained = {task: (set(seeds.split(",")), *sizes) for task, seeds, *sizes in shown()["trained"]["rows"]}
    assert tried.keys() == trained.keys()
    [rates] = {rates for rates, _ in tried.values()}
    [final] = {len(seeds) for seeds, *_ in trained.values()}
    assert not any(tried[task][1] & trained[task][0] for task in tried)
    few = min(len(seeds) for _, seeds in tried.values())
    more = "".join(f" ({task}: {len(seeds)})" for task, (_, seeds) in tried.items() if len(seeds) > few)
    columns = list(zip(*(sizes for _, *sizes in trained.values()), strict=True))
    depth, width, steps = (_between(min(columns[k]), max(columns[k + 1])) for k in (0, 2, 4))
    return (
        f"For each rung one of {rates} learning rates was chosen on validation, with {few} seeds{more}. The rung was "
        f"then trained with {final} other seeds. Networks have a depth of {depth} and a width of {width}, and train "
        f"for {steps} steps."
    )


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def conclusions(ladder: str) -> str:
    """Which changes help or hurt on most tasks, on some, and on none; on which tasks the first rung is the best, and on
    which most seeds of no rung learn."""
    first, unlearned, improving = [], [], []
    for column, cells in _columns(ladder):
        if 5 * sum(cell["improving"] for cell in cells) > sum(cell["n"] for cell in cells):
            improving.append(column["task"])
        if all(2 * (cell["learning"] or 0) <= cell["n"] for cell in cells):
            unlearned.append(column["task"])
        elif _best(column["score"], cells) is cells[0]:
            first.append(column["task"])
    sentences = [
        *shown()[ladder]["conclusions"],
        f"On no rung do most seeds learn, which is to be better than chance: {', '.join(unlearned) or 'none'}.",
        f"Elsewhere no later rung has a better mean than {shown()[ladder]['rows'][0]['rung']} on: "
        f"{', '.join(first) or 'none'}.",
        f"More than a fifth of the runs is still improving, so that more steps may change a verdict, on "
        f"{len(improving)} of {len(shown()[ladder]['columns'])} tasks.",
    ]
    return "\n".join(f"* {sentence}" for sentence in sentences)


def answer() -> str:
    """What the page says, in three sentences."""
    on = {ladder: _tasks_by_verdict(ladder) for ladder in (*LADDERS, "controls")}
    lru, selective, form = on["lru"], on["selective"], on["controls"]["diagonal-dense-radius"]["helps"]
    count = len(shown()["lru"]["columns"])
    means = [mean for rung in PAIR if (mean := _exact(rung, BUDGETS[-2])) is not None]
    assert len(means) == len(PAIR)
    assert min(means) >= 0.9, "the last sentence has to be another one"
    return "\n".join(
        [
            f"* A diagonal recurrence in place of a dense one helps on {len(lru['diagonal']['helps'])} of {count} "
            f"tasks, with the same initial spectral radius on {len(form)}. A start on a ring then helps on "
            f"{len(lru['ring-init']['helps'])}; small initial phases hurt on {len(lru['small-phase']['hurts'])} "
            f"and help on {len(lru['small-phase']['helps'])}.",
            f"* From the LRU to the RG-LRU, real numbers in place of complex ones hurt on "
            f"{len(selective['real']['hurts'])} of {len(shown()['selective']['columns'])} tasks, and the gate of the "
            f"recurrence helps on {_named(selective['recurrence-gate']['helps'])}.",
            f"* Of the parameters of S6, Delta alone and B and C alone learn to copy selectively: with "
            f"{BUDGETS[-2]:,} steps both have at least {math.floor(100 * min(means))} % of exact copies.",
        ]
    )


def _tasks_by_verdict(ladder: str) -> dict[str, dict[str, list[str]]]:
    """For each rung after the first the tasks on which its change helps, hurts, or is undecided."""
    return {
        row["rung"]: {word: [cell["task"] for cell in row["cells"] if cell["verdict"] == word] for word in VERDICTS}
        for row in shown()[ladder]["rows"][1:]
    }


def _on_these_items(row: dict[str, Any]) -> str:
    """The tasks on which a change is undecided, and decided on these test items."""
    words = {"supported": "helps", "contradicted": "hurts"}
    found = [
        f"{cell['task']} ({words[verdict]})"
        for cell in row["cells"]
        if cell["comparison"] and (verdict := cell["comparison"]["verdict_on_these_items"])
    ]
    return ", ".join(found) or "–"


def changes(ladder: str, rungs: Sequence[str] = ()) -> str:
    """Each rung, or only some, with the tasks on which its change helps or hurts; on how many it is undecided."""
    rows = []
    on = _tasks_by_verdict(ladder)
    for row in shown()[ladder]["rows"][1:]:
        if rungs and row["rung"] not in rungs:
            continue
        base = f" on `{row['cells'][0]['on']}`" if row["cells"][0]["branches"] else ""
        rows.append([f"`{row['rung']}`{base}", *_counted(on[row["rung"]]), _on_these_items(row)])
    heads = [*(f"{verdict} on" for verdict in VERDICTS), "of these, on these test items"]
    return table(["change to the rung before", *heads], rows)


def smallest() -> str:
    """The smallest difference that is decided."""
    size, rung, task = min(
        (abs(cell["comparison"]["difference"]), cell["rung"], cell["task"])
        for column, cells in _columns("lru")
        for cell in cells
        if column["score"]["unit"] == "R²" and cell["verdict"] in VERDICTS[:2]
    )
    return (
        f"Read the counts with the sizes in the picture: the smallest difference in R² that is decided is {size:.4f} "
        f"(`{rung}` on {task})."
    )


def claims() -> str:
    """Each claim of the paper, with the tasks on which the runs support it, contradict it, or do not decide it."""
    tasks: dict[str, dict[str, list[str]]] = defaultdict(lambda: {verdict: [] for verdict in JUDGED})
    for claim in shown()["claims"]:
        if claim["here"]["verdict"] in JUDGED:
            tasks[claim["text"]][claim["here"]["verdict"]].append(claim["task"])
    return table(["claim", *JUDGED], [[text, *_counted(on)] for text, on in tasks.items()])


def tasks(ladder: str) -> str:
    """Each task: the scores of the first and the best rung, what limits its verdicts, and what its runs took."""
    rows = []
    taken = {(of_ladder, task): seconds for of_ladder, task, seconds in shown()["seconds"]["rows"]}
    for column, cells in _columns(ladder):
        form, best = column["score"], _best(column["score"], cells)
        improving, diverged = sum(cell["improving"] for cell in cells), sum(cell["diverged"] for cell in cells)
        at_edge = [caution["where"] for caution in column["cautions"] if caution["what"].startswith("best rate at the")]
        scores = [_score(form, cells[0]), f"{_score(form, best)} {best['rung']}"]
        limits = [f"{improving} of {sum(cell['n'] for cell in cells)}", str(diverged or "–"), *(at_edge or ["–"])]
        rows.append([column["task"], *scores, *limits, f"{taken[ladder, column['task']] / 60:.0f} min"])
    first = shown()[ladder]["rows"][0]["rung"]
    limits = ["still improving", "diverged", "best rate at the edge"]
    return table(["task", first, "best rung", *limits, "time of all runs"], rows)


def budgets() -> str:
    """The share of exact copies of each rung at each budget, and from which budget on the mean is at least 90 %."""
    rows = []
    for rung, (depends, _) in _selection().items():
        means = {steps: _exact(rung, steps) for steps in BUDGETS}
        few = [steps for steps, mean in means.items() if mean is not None and mean < 0.9]
        enough = [steps for steps, mean in means.items() if mean is not None and steps > max(few, default=0)]
        rows.append([f"`{rung}`", depends, *map(_percent, means.values()), f"{enough[0]:,}" if enough else "–"])
    return table(["rung", "depends on the input", *(f"{steps:,}" for steps in BUDGETS), "90 % from"], rows)


def speed() -> str:
    """How fast the rungs learn, what they can learn, and where the order of Delta and of B and C is decided."""
    early, late, latest = BUDGETS[1], BUDGETS[-2], BUDGETS[-1]
    share, best = max((_exact(rung, early) or 0.0, rung) for rung in _selection())
    learned = [rung for rung in _selection() if (_exact(rung, late) or 0.0) >= 0.9]
    rest = (
        f"`{rung}` {_percent(_exact(rung, late))} and {_percent(_exact(rung, latest))} %"
        for rung in _selection()
        if rung not in learned
    )
    decided = (
        f"{steps:,} steps ({claim['verdict']})"
        for steps, claim in _claims().items()
        if claim["verdict"] in JUDGED[:2] and not claim["provisional"]
    )
    return "\n".join(
        [
            f"* With {early:,} steps the best rung, `{best}`, makes {_percent(share)} % of copies exactly; with "
            f"{late:,} steps {len(learned)} of {len(_selection())} rungs make at least 90 %. Small budgets show how "
            f"fast a rung learns, and not what it can learn.",
            f"* The others with {late:,} and {latest:,} steps: {'; '.join(rest)}.",
            f"* B and C alone beside Delta alone are decided at: {', '.join(decided) or 'no budget'}.",
        ]
    )


def _claims() -> dict[int, dict[str, Any]]:
    """The claim that B and C alone do more than Delta alone, at each budget."""
    return {
        steps: claim
        for steps, report in shown()["selection"].items()
        for claim in report["claims"]
        if (claim["rung"], claim["other"]) == tuple(PAIR)
    }


def order() -> str:
    """Delta alone beside B and C alone, at each budget at which both were trained."""
    rows = []
    for steps, claim in _claims().items():
        if claim["verdict"] not in JUDGED:
            continue
        seeds = " and ".join(dict.fromkeys(str(side["n"]) for side in claim["sides"]))
        shares = [*(_exact(rung, steps) for rung in PAIR), *(side["mean"] for side in claim["sides"])]
        verdict = claim["verdict"] + ", provisional" * claim["provisional"]
        rows.append([f"{steps:,}", seeds, *map(_percent, shares), verdict, f"{claim['p_adjusted']:.3f}"])
    heads = [f"{what}: {which}" for what in ("exact", "tokens") for which in PAIR.values()]
    return table(["steps", "seeds", *heads, "claim", "p"], rows)


def by_rate() -> str:
    """The accuracy on validation of each rung at each learning rate that was tried; the chosen one is bold."""
    scores = shown()["by_rate"]
    rates = sorted({rate for _, rate in scores})
    rows = []
    for rung, (_, chosen) in _selection().items():
        texts = [_percent(scores[rung, rate]) for rate in rates]
        rows.append(
            [f"`{rung}`", *(f"**{text}**" if rate == chosen else text for text, rate in zip(texts, rates, strict=True))]
        )
    return table(["rung", *map(str, rates)], rows)


@cache
def _selection() -> dict[str, tuple[str, float]]:
    """The rungs of the ladder mamba that were trained: what of S6 depends on the input, and the learning rate."""
    from lrurun.config import planning

    trained = {row["rung"] for row in shown()["selection"][BUDGETS[0]]["rows"] if row["n"]}
    selection = {}
    for rung in planning.make(SELECTION[0], ladder="mamba", profile="tokens-4", imports=False).rungs:
        s6: Any = rung.training.model.recurrence
        selective = {"Delta": s6.delta != "constant", "B": s6.b == "selective", "C": s6.c == "selective"}
        text = ", ".join(name for name, is_selective in selective.items() if is_selective) or "nothing"
        if rung.name in trained:
            text += " (of another sequence)" * (s6.gates == "shuffled")
            selection[rung.name] = text, rung.training.optim.lr
    return selection


def _exact(rung: str, steps: int) -> float | None:
    """The mean share of sequences of which all tokens are right; None without a run."""
    mean: float | None = shown()["exact"].get((rung, steps))
    return mean


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def hours() -> str:
    """What all runs took."""
    [(seconds, runs, attempts)] = shown()["hours"]["rows"]
    return (
        f"{runs:,} runs took {seconds / 3600:.1f} hours together, two at a time, mostly beside other work; "
        f"{attempts - runs} were killed, and continued."
    )


def _columns(ladder: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each task, with its cells from the first rung to the last."""
    report = shown()[ladder]
    return [(column, [row["cells"][k] for row in report["rows"]]) for k, column in enumerate(report["columns"])]


def _best(form: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The cell with the best mean score on the test set, the first of equal ones."""
    sign = -1 if form["higher_is_better"] is False else 1
    return max((cell for cell in cells if cell["n"]), key=lambda cell: sign * cell["mean"])


def _score(form: dict[str, Any], cell: dict[str, Any]) -> str:
    return f"{form['scale'] * cell['mean']:.{form['decimals']}f} {form['symbol']}".rstrip()


def _named(tasks: Sequence[str]) -> str:
    return f"{len(tasks)}: {', '.join(tasks)}" if tasks else "none"


def _counted(on: dict[str, list[str]]) -> list[str]:
    """The names by verdict; of the undecided ones, the last, only how many."""
    *decided, undecided = on.values()
    named = [_named(names) if names else "–" for names in decided]
    return [*named, str(len(undecided) or "–")]
