"""Mirror to MLflow: MLFLOW_TRACKING_URI says where, else a database in `RUN/trackers/mlflow`."""

import os
import time

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from argosy.integrations.trackers import Opening

_PARAMETERS_AT_ONCE = 100
_LONGEST_VALUE = 500


class MlFlow:
    """One MLflow run, found again by its id in later attempts."""

    def __init__(self, given: Opening):
        uri = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{given.folder.resolve()}/mlflow.db")
        self._client = MlflowClient(tracking_uri=uri)
        if "run_id" not in given.kept:
            given.kept["run_id"] = self._new_run(given)
        self._run_id = given.kept["run_id"]

    def _new_run(self, given: Opening) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "argosy")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        run = self._client.create_run(number, run_name=given.name, tags={"argosy.run": given.run_id})
        parameters = [Param(key, str(value)[:_LONGEST_VALUE]) for key, value in given.config.items()]
        for begin in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            self._client.log_batch(run.info.run_id, params=parameters[begin : begin + _PARAMETERS_AT_ONCE])
        return str(run.info.run_id)

    def log(self, step: int, figures: dict[str, float]) -> None:
        now_ms = time.time_ns() // 10**6
        metrics = [Metric(name, value, now_ms, step) for name, value in figures.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        self._client.log_batch(self._run_id, tags=[RunTag("argosy.seen_ms", str(time.time_ns() // 10**6))])


def open_tracker(given: Opening) -> MlFlow:
    """The run at MLflow, new or continued."""
    return MlFlow(given)
