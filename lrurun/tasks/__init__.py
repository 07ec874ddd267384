"""The former place of the task interface: plug-ins written for 0.1.0 import it from `lrurun.tasks.base`."""
