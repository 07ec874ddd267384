"""The message for an unknown setting, with the nearest known one, and for a setting that cannot be set where it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from lrurun.config.optimizers import OPTIMIZERS
from lrurun.config.schema import (
    KIND,
    OPTIMIZER,
    OTHER_FORMS,
    RECURRENCE,
    SETTINGS,
    choice_for,
    is_known,
    known_paths,
    own_settings,
)
from lrurun.config.settings import flatten
from lrurun.decoding import UNKNOWN_NAME, Fault
from lrurun.errors import UsageError, nearest

_OTHER_NAMES = {
    "optim.learning_rate": "optim.lr",
    "optim.rate": "optim.lr",
    "optim.optimizer": "optim.name",
    "optim.decay": "optim.weight_decay",
    "optim.beta1": "optim.b1",
    "optim.beta2": "optim.b2",
    "optim.betas": "optim.b1",
    "optim.epsilon": "optim.eps",
    "optim.clip_norm": "optim.clip",
    "optim.max_norm": "optim.clip",
    "optim.grad_clip": "optim.clip",
    "optim.ema": "optim.average",
    "optim.ema_decay": "optim.average_decay",
    "optim.min_lr": "optim.floor",
}
"""Names that other libraries have for settings, where the spelling leads elsewhere."""


def setting_faults(
    table: dict[str, Any],
    where: str,
    *,
    within: tuple[str, ...] = (),
    kinds: Collection[str | None] = (),
    known: Collection[str] | None = None,
) -> Iterator[Fault]:
    """Faults of settings: unknown paths, paths outside the sections `within`, and paths that are set twice."""
    paths: set[str] = set()
    for path, _ in flatten(table):
        if fault := path_fault(path, where, within=within, kinds=kinds, known=known):
            yield fault
        elif path in paths:
            yield Fault("set twice", where, path, hint="remove one of them")
        elif fault := other_form_fault(path, paths, where):
            yield fault
        paths.add(path)


def other_form_fault(path: str, paths: Collection[str], where: str) -> Fault | None:
    """The fault of a setting whose other form is among these paths, which are set in the same place."""
    if (other := OTHER_FORMS.get(path)) not in paths:
        return None
    return Fault(f"set in another form too, {other}", where, path, hint="remove one of them")


def untried_fault(path: str, where: str, choices: Mapping[str, Any], tune: Collection[str]) -> Fault | None:
    """The fault of a setting to try that the kind of recurrence, or the optimiser, of a rung does not have.

    Args:
        choices: the kind and the optimiser, see `choices_of`; None where they are not known.
        tune: the paths that are tried.
    """
    optimizer = choices[OPTIMIZER]
    estimates = is_known(OPTIMIZER, optimizer) and OPTIMIZERS[optimizer].estimates_rate
    if path == "optim.lr" and estimates and OPTIMIZER not in tune:
        return Fault(f"{optimizer} estimates its learning rate", where, path, hint="remove it: there is none to try")
    choice = choice_for(path)
    if choice is None or choice in tune or not is_known(choice, choices[choice]):
        return None
    own = own_settings(choice, choices[choice])
    if path.rpartition(".")[2] in own:
        return None
    hint = f"its own settings: {', '.join(own)}" if own else "it has no settings of its own"
    return Fault(f"a setting that {choices[choice]} does not have", where, path, hint=hint)


def path_fault(
    path: str,
    where: str,
    *,
    within: tuple[str, ...] = (),
    kinds: Collection[str | None] = (),
    known: Collection[str] | None = None,
) -> Fault | None:
    """The fault of a path that names no setting, or a setting outside the sections `within`; None without a fault.

    It names the nearest setting: of the recurrences `kinds`, if one is near, else of all.

    Args:
        known: the settings of a recipe; None where there is no recipe: which ones a program has is then not known.
    """
    if known is not None and KIND not in known:  # a program
        if path not in known:
            by_name = {name.rpartition(".")[2]: name for name in known}
            close = by_name.get(nearest(path.rpartition(".")[2], by_name) or "")
            listed = f"its settings: {', '.join(name for name in known if name.startswith(SETTINGS)) or 'none'}"
            return Fault(
                "no setting of this program", where, path, hint=f"did you mean {close!r}?" if close else listed
            )
    elif path.startswith(SETTINGS):
        if known is not None:
            return Fault(UNKNOWN_NAME, where, path, hint="only recipes with a [program] have settings of this form")
    elif path not in (known := known or known_paths()):
        last = path.rpartition(".")[2]
        settings = [f"{RECURRENCE}{name}" for kind in kinds for name in own_settings(KIND, kind)]
        close = (path.startswith(RECURRENCE) and nearest(path, settings)) or nearest(path, known)
        close = close or next((name for name in known if name.rpartition(".")[2] == last), None)
        close = _OTHER_NAMES.get(path, close)
        hint = (
            f"did you mean {close!r}?"
            if close
            else "paths begin with model., optim., train. or execution., of a program with settings."
        )
        return Fault(UNKNOWN_NAME, where, path, hint=hint)
    if within and path.partition(".")[0] not in within:
        allowed = ", ".join(f"{section}.*" for section in within)
        return Fault("cannot be set here", where, path, hint=f"settings that can: {allowed}")
    return None


def check_path(path: str, where: str, kinds: Collection[str | None] = (), known: Collection[str] | None = None) -> None:
    """Raise Fault if `path` names no setting; the other arguments are as for `path_fault`."""
    if fault := path_fault(path, where, kinds=kinds, known=known):
        raise fault


def check_set(path: str, kinds: Collection[str | None] = (), known: Collection[str] | None = None) -> None:
    """Refuses a path that `--set` cannot set; `kinds` and `known` are as for `path_fault`.

    Raises:
        UsageError: it names no setting, or one that is set in other ways.
    """
    if path in ("seed", "seeds"):
        raise UsageError(f"--set {path}: seeds are not set this way", "use --seeds 0,1,2")
    if path.startswith("data."):
        raise UsageError(
            f"--set {path}: settings of the data cannot be set here, because other data need another folder",
            "copy the recipe to ./recipes and set it in [data] or in a [profile.<name>.data]",
        )
    check_path(path, f"--set {path}", kinds, known)
