"""Trains the runs of a command: one supervisor, and worker processes.

In the supervisor's process, without jax: `supervisor`, `selection` (which runs, retries), `executors` (where workers
are: `local` for this machine), `processes`, `signals`, `preparation` (data). In a worker: `worker` (starts), `orders`
(holds runs), `attempt`, `execute` (trains, and writes what training yields), `recorder` (metric rows), `snapshots`
(checkpoints), `collection` (of garbage). Between them: `work`. For all: `storage` and `logs` (the runs folder),
`run_files`.
"""
