"""What was understood of a source, a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lrurun.config.imported import ImportTable
from lrurun.config.ladder import Ladder
from lrurun.errors import plural
from lrurun.imported import understanding
from lrurun.imported.recording import Placed
from lrurun.trackers import TrackedRun


def score_sentence(table: ImportTable, known: Mapping[str, int]) -> str:
    step = {"last": "at the last step", "best": f"at the best step by {table.metric_for_choice}"}
    at = step.get(str(table.at), f"at step {table.at}")
    if table.protocol == "best-of-test":
        at = "the best of all steps, which was chosen on the test split"
    better = "higher is better" if table.direction == "max" else "lower is better"
    unit = f", in {'per cent' if table.unit == '%' else table.unit}" if table.unit else ""
    read = ", divided by 100" if table.per_cent else ""
    others = [name for name in known if name != table.metric]
    more = f"; other metrics: {', '.join(others[:8])}" if others else ""
    more += f" and {len(others) - 8} more" if len(others) > 8 else ""
    return f"score: {table.metric}, {at}; {better}{unit}{read}{more}"


def seed_sentences(table: ImportTable, runs: Sequence[TrackedRun]) -> list[str]:
    if not table.seed:
        why = understanding.no_seeds(runs) or "no setting has them"
        return [f"seeds: {why}: the runs of a rung are numbered, and that they are independent is your word"]
    values = {repr(run.settings.get(table.seed)) for run in runs} - {"None", "''"}  # whatever they are
    return [f"seeds: the setting {table.seed}, with {plural(len(values), 'value')}"]


def rung_sentences(
    ladder: Ladder, placed: Sequence[Placed], kept: Sequence[tuple[Placed, str]], by: Sequence[str]
) -> list[str]:
    every = [*placed, *(place for place, _ in kept)]
    counts = {name: sum(place.rung == name and place.stage == "train" for place in every) for name in ladder.bases}
    of_by = f" by {', '.join(by)}" if by else ""
    listed = ", ".join(f"{name} ({plural(count, 'run')})" for name, count in counts.items())
    sentences = [f"rungs{of_by}: {listed}"]
    bases = {name: base for name, base in ladder.bases.items() if base is not None}
    if len(set(bases.values())) == 1:
        sentences[0] += f"; compared with {next(iter(bases.values()))}"
    elif bases:
        sentences[0] += f"; bases: {', '.join(f'{name} on {base}' for name, base in bases.items())}"
    single = [name for name, count in counts.items() if count == 1]
    if single:
        sentences.append(f"a single run: {', '.join(single)}; a verdict needs several seeds of each rung")
    if kept:
        sentences.append(f"{plural(len(kept), 'run')} of earlier imports, which the source no longer has, still count")
    return sentences


def outside_sentences(outside: Sequence[str]) -> list[str]:
    if not outside:
        return []
    verb = "fits" if len(outside) == 1 else "fit"
    more = f" and {len(outside) - 5} more" if len(outside) > 5 else ""
    return [f"{plural(len(outside), 'run')} {verb} no rung: {', '.join(outside[:5])}{more}"]
