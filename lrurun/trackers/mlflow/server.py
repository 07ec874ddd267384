"""A tracking server of MLflow, asked by MLflow's own client."""

from __future__ import annotations

import contextlib
import os
import socket
import warnings
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import numpy as np

from lrurun.errors import LrurunError
from lrurun.trackers import Curve
from lrurun.trackers.mlflow.stores import PARENT, Last, StoredRun, ends, seconds, with_infinities

_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # it would report its use to its makers
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # by default it repeats for minutes where nothing answers
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
_WAIT = 5
"""Seconds in which a server must take a connection."""
_PAGE = 1000
"""The most runs of an answer."""
_Answer = TypeVar("_Answer")


class Server:
    """A tracking server, which is only asked. Tokens and passwords are taken from MLflow's environment variables."""

    def __init__(self, address: str) -> None:
        """
        Raises:
            LrurunError: nothing answers, or MLflow is not installed.
        """
        self._address = address
        _check_answers(address)
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its own use of other libraries
                import mlflow
                from mlflow.tracking import MlflowClient
        except ModuleNotFoundError as error:
            raise LrurunError(
                f"{address}: {error.name} is not installed, which asks MLflow's servers",
                "install it: pip install 'lrurun[mlflow]'",
            ) from None
        self.version = f"mlflow-skinny {mlflow.__version__}"
        self._client = MlflowClient(tracking_uri=address)
        self._unordered: dict[str, None] = {}
        """Metrics with several values of the last step and time, of which the server does not tell the last one."""

    def close(self) -> None:
        pass

    def sentences(self) -> list[str]:
        if not self._unordered:
            return []
        names = ", ".join(self._unordered)
        return [
            f"the greatest of several values of the last step and millisecond counts, as a server sorts them: {names}"
        ]

    def experiments(self) -> dict[str, str]:
        found = self._pages(lambda token: self._client.search_experiments(page_token=token))
        return {experiment.experiment_id: experiment.name for experiment in found}

    def parents(self, experiments: Collection[str]) -> dict[str, str]:
        found = self._search(experiments)
        return {run.info.run_id: run.data.tags[PARENT] for run in found if PARENT in run.data.tags}

    def deleted(self, experiments: Collection[str]) -> int:
        from mlflow.entities import ViewType

        return sum(1 for _ in self._search(experiments, view=ViewType.DELETED_ONLY))

    def runs(self, experiments: Collection[str]) -> Iterator[StoredRun]:
        for run in self._search(experiments):
            info, tags = run.info, dict(run.data.tags)
            data = [input.dataset for input in run.inputs.dataset_inputs] if run.inputs else []
            yield StoredRun(
                id=info.run_id, experiment=info.experiment_id, status=info.status, tags=tags,
                name=info.run_name or tags.get("mlflow.runName", ""),
                started_at=seconds(info.start_time), ended_at=seconds(info.end_time),
                parameters=dict(run.data.params), data=", ".join(sorted(f"{d.name} {d.digest}" for d in data)),
                place=f"{self._address}/#/experiments/{info.experiment_id}/runs/{info.run_id}",
            )  # fmt: skip

    def parameters(self, run: str) -> dict[str, str]:
        return dict(self._asked(lambda: self._client.get_run(run)).data.params)

    def metrics(self, run: StoredRun, names: Collection[str] | None) -> tuple[dict[str, Last], dict[str, Curve]]:
        """The server names only the values of the greatest step: of each metric the whole history is asked for."""
        curves = {}
        for name in self._asked(lambda: self._client.get_run(run.id)).data.metrics:
            history = self._asked(partial(self._client.get_metric_history, run.id, name))
            history = sorted(history, key=lambda point: point.timestamp)
            if len({(point.timestamp, point.step) for point in history[-2:]}) < len(
                {(point.timestamp, point.step, point.value) for point in history[-2:]}
            ):
                self._unordered[name] = None
            values = np.array([point.value for point in history], np.float64)
            curves[name] = Curve(np.array([point.step for point in history], np.int64), with_infinities(values))
        return ends(curves), {name: curve for name, curve in curves.items() if names is None or name in names}

    def _search(self, experiments: Collection[str], view: int | None = None) -> Iterator[Any]:
        from mlflow.entities import ViewType

        def page(token: str | None) -> Any:
            return self._client.search_runs(
                list(experiments), run_view_type=ViewType.ACTIVE_ONLY if view is None else view, max_results=_PAGE,
                order_by=["attributes.start_time ASC"], page_token=token,
            )  # fmt: skip

        return self._pages(page) if experiments else iter(())

    def _pages(self, page: Callable[[str | None], Any]) -> Iterator[Any]:
        token = None
        while True:
            answer = self._asked(partial(page, token))
            yield from answer
            token = answer.token
            if not token:
                return

    def _asked(self, question: Callable[[], _Answer]) -> _Answer:
        """The answer to a question; errors of the client and of the network become errors of the source."""
        from mlflow.exceptions import MlflowException
        from requests import RequestException

        try:
            return question()
        except (MlflowException, RequestException) as error:
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
            with contextlib.suppress(AttributeError):
                if error.get_http_status_code() in (401, 403):
                    raise LrurunError(
                        f"{self._address}: the server refuses: {reason}",
                        "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
                    ) from None
            raise LrurunError(
                f"{self._address}: does not answer as a server of MLflow: {reason}",
                "open the address in a browser; it is printed by `mlflow server`",
            ) from None


def _check_answers(address: str) -> None:
    """Refuses an address at which nothing takes connections: MLflow's client repeats for long, without a word. Through
    a proxy that is not known.

    Raises:
        LrurunError: with the reason of the system.
    """
    parts = urlsplit(address)
    host, scheme = parts.hostname or "", parts.scheme
    if scheme in getproxies() and not proxy_bypass(host):
        return
    try:
        with socket.create_connection((host, parts.port or (443 if scheme == "https" else 80)), _WAIT):
            pass
    except (OSError, ValueError, OverflowError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise LrurunError(
            f"{address}: does not answer as a server of MLflow: {reason}",
            "start the server (mlflow server --port PORT), and give the address that it prints",
        ) from None
