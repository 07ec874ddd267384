"""Everything that is wrong with a recipe, found in one pass: `lrurun check recipe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from lrurun import decoding, paths
from lrurun.config import plan as planning
from lrurun.config import recipe as recipes
from lrurun.config import resolve
from lrurun.config.ladder import Ladder, load_ladder, read_ladder
from lrurun.config.recipe import NEUTRAL, Profile, Recipe, check_scopes, extended, is_packaged, load_installed
from lrurun.decoding.faults import faults, repaired
from lrurun.errors import UsageError, nearest, plural


class Finding(Struct, frozen=True):
    """The outcome of one check, or one fault."""

    check: str
    passed: bool
    detail: str
    is_warning: bool = False


def find(name: str, ladders: Sequence[str]) -> list[Finding]:
    """What is wrong with a recipe: its fields, and its values on the ladders of these names.

    Without `ladders`, it is checked on those that it has values for.

    Raises:
        UsageError: there is no such recipe or ladder, or it is not TOML.
    """
    recipe, wrong, harmless = _read(name)
    found = [Finding("fields", False, _text(error)) for error in wrong]
    found += [Finding("documentation", True, _text(error), is_warning=True) for error in harmless]
    if recipe is None:
        return found
    errors: list[UsageError] = []
    for step in (load_installed, planning.task_of, lambda one: recipes.check(one, errors.append)):
        try:
            step(recipe)
        except UsageError as fault:
            errors.append(fault)
    found += [Finding("fields", False, text) for text in dict.fromkeys(map(_text, [*errors, *_of_data(recipe)]))]
    known = {one.detail for one in found}
    chosen, skipped = _ladders(recipe, ladders)
    for profile in (None, *recipe.profile):
        sound = all(one.passed for one in found)
        detail, first = _whole(recipe, profile, chosen) if sound else ("", [])
        wrong = list(_values(recipe, profile, chosen)) if first or not sound or not chosen else []
        new = [text for text in dict.fromkeys(map(_text, wrong or first)) if text not in known]
        known.update(new)
        where = f"profile {profile or '(none)'}"
        found += [Finding(where, False, text) for text in new]
        if sound and not new:
            found.append(Finding(where, True, detail))
    if all(one.passed for one in found):
        found.insert(0, Finding("the document", True, f"checked: {recipe.about.checked}"))
    return found + skipped


def _text(error: UsageError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _read(name: str) -> tuple[Recipe | None, list[UsageError], list[UsageError]]:
    """The recipe without what is wrong in it, its errors, and those of documentation, which do no harm.

    No recipe: it does not say of which task it is.
    """
    path = paths.find("recipes", name)
    where = paths.shown(path)
    table, sources = extended(decoding.load_toml(path), path)
    found = faults(table, Recipe, where, sources)
    if "path" in table:
        found = [one for one in found if one.path != ("path",)]
        wrong = [UsageError(f"{where}, path: unknown name", "remove it: lrurun knows the path of the file")]
    else:
        wrong = []
    own = not is_packaged(path)
    harmless = [one.error for one in found if own and one.path[0] == "about"]
    wrong += [one.error for one in found if not own or one.path[0] != "about"]
    table = repaired(table, Recipe, NEUTRAL)
    recipe = None if table is None else decoding.convert({**table, "path": where}, Recipe, where)
    return recipe, wrong, harmless


def _of_data(recipe: Recipe) -> Iterator[UsageError]:
    """Wrong settings of the data, of the recipe and its profiles."""
    try:
        task = planning.task_of(recipe)
    except UsageError:
        return  # found before
    for name, data in (("", {}), *((f"profile.{name}.", one.data) for name, one in recipe.profile.items())):
        sources = dict.fromkeys(recipe.data, f"{recipe.path} [data]")
        sources |= dict.fromkeys(data, f"{recipe.path} [{name}data]")
        for one in faults(recipe.data | data, task.options, f"{recipe.path} [data]", sources):
            yield one.error


def _ladders(recipe: Recipe, names: Sequence[str]) -> tuple[list[Ladder], list[Finding]]:
    """The ladders to check the recipe on, and those of its own that cannot be checked."""
    if names:
        return [load_ladder(name) for name in names], []
    values: list[Recipe | Profile] = [recipe, *recipe.profile.values()]
    own = dict.fromkeys(ladder for one in values for ladder in one.ladder)
    chosen: list[Ladder] = []
    skipped: list[Finding] = []
    there = paths.names("ablations")
    for name in own:
        if name not in there:
            close = nearest(name, there)
            detail = f"not checked: there is no ladder {name!r} here" + (f", did you mean {close!r}?" if close else "")
            skipped.append(Finding(f"on {name}", True, f"{detail}; --ladder PATH.toml checks one", is_warning=True))
        elif files := read_ladder(name).load:
            detail = f"not checked: loads {', '.join(files)}; --ladder {name} does"
            skipped.append(Finding(f"on {name}", True, detail, is_warning=True))
        else:
            chosen.append(load_ladder(name))
    if not own:
        detail = "not checked: the recipe has values for none; --ladder NAME checks one"
        skipped.append(Finding("ladders", True, detail, is_warning=True))
    return chosen, skipped


def _values(recipe: Recipe, profile: str | None, ladders: Sequence[Ladder]) -> Iterator[UsageError]:
    """Missing and wrong values on the rungs of these ladders; without any, of the recipe alone."""

    def known(error: UsageError) -> None:
        """Paths are checked before."""

    if not ladders:
        yield from resolve.value_faults(resolve.common(recipe, profile, known), recipe.task, recipe.path)
    for ladder in ladders:
        try:
            check_scopes(ladder, recipe)
        except UsageError as error:
            yield error
        for one in resolve.valued(ladder, recipe, profile, {}, sink=known):
            yield from one.unset
            yield from resolve.value_faults(one.values, recipe.task, recipe.path)
            yield from resolve.grid_faults(one, recipe.task, recipe.path)


def _whole(recipe: Recipe, profile: str | None, ladders: Sequence[Ladder]) -> tuple[str, list[UsageError]]:
    """What a profile trains, or the first error, also of rules between values."""
    counts: list[str] = []
    length = ""
    try:
        for ladder in ladders:
            made = planning.of_documents(ladder, recipe, profile=profile, sets=(), tune=False)
            counts.append(f"{plural(len(made.rungs), 'rung')} of ladder {ladder.name}")
            length = f", {plural(made.rungs[0].config.train.steps, 'step')}, {plural(made.seeds, 'seed')}"
    except UsageError as error:
        return "", [error]
    return (", ".join(counts) or "its values") + length, []
