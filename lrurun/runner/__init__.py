"""Runs ladders: one supervisor, and worker processes that train.

In the supervisor's process, without jax: `supervisor`, `selection` (which runs), `pool` and `processes` (workers),
`heartbeat`, `signals`, `preparation` (data). In a worker: `worker` (claims runs), `attempt`, `execute` (trains, and
writes what training yields), `recorder` (metric rows), `snapshots` (checkpoints). Between them: `messages`.
"""
