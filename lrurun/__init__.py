"""Named ablation ladders between a tanh RNN and the Linear Recurrent Unit: the version and the public API.

`ladder` gives a ladder to plan, train, report and draw, `study` a theory figure of a paper; `resume` finishes what was
interrupted; `import_runs` gives a ladder of runs that were made elsewhere. `open` gives a ledger to read, `load` the
trained model of a run.
`recurrence`, `optimizer` and `task` register a class of yours, a subclass of `Recurrence`, `Optimizer` or `Task`;
`this_run` is what a training script of yours asks, when a ladder has started it. All of them are imported on first use,
so that `import lrurun` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lrurun.version import VERSION

if TYPE_CHECKING:
    from lrurun.config.optimizers.registration import optimizer
    from lrurun.config.recurrences.registration import recurrence
    from lrurun.data.registration import task
    from lrurun.data.task import Task
    from lrurun.nn.recurrences.base import Recurrence
    from lrurun.programs.module.lrurun import this_run
    from lrurun.reading import open
    from lrurun.session.importing import import_runs
    from lrurun.session.ladder import ladder
    from lrurun.session.resuming import resume
    from lrurun.session.study import study
    from lrurun.trained import load
    from lrurun.training.optimizers.base import Optimizer

__version__ = VERSION
__all__ = [
    "Optimizer",
    "Recurrence",
    "Task",
    "__version__",
    "import_runs",
    "ladder",
    "load",
    "open",
    "optimizer",
    "recurrence",
    "resume",
    "study",
    "task",
    "this_run",
]

_MODULES = {
    "Optimizer": "lrurun.training.optimizers.base",
    "Recurrence": "lrurun.nn.recurrences.base",
    "Task": "lrurun.data.task",
    "import_runs": "lrurun.session.importing",
    "ladder": "lrurun.session.ladder",
    "load": "lrurun.trained",
    "open": "lrurun.reading",
    "optimizer": "lrurun.config.optimizers.registration",
    "recurrence": "lrurun.config.recurrences.registration",
    "resume": "lrurun.session.resuming",
    "study": "lrurun.session.study",
    "task": "lrurun.data.registration",
    "this_run": "lrurun.programs.module.lrurun",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
