"""The former place of the task interface, now `lrurun.data.task`: plug-ins written for 0.1.0 import it from here."""

from lrurun.data.task import (
    SPLITS,
    Count,
    Data,
    Fill,
    Options,
    Progress,
    Remote,
    Seed,
    Source,
    Spec,
    Split,
    Task,
    limited,
    majority,
    portions,
)

Tell = Progress

__all__ = ["SPLITS", "Count", "Data", "Fill", "Options", "Remote", "Seed", "Source", "Spec", "Split", "Task", "Tell"]
__all__ += ["limited", "majority", "portions"]
