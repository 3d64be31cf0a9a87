"""A job as `plan.json` describes it (INTERFACES 8)."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.errors import ArgosyError, InputError
from argosy.hardware.cluster import Cluster
from argosy.hardware.cluster_file import load_cluster
from argosy.simulator.failures import DAY_S
from argosy.simulator.job import Job, Price, restart_phases, save_times

SCHEMA = 1


def read_plan(file: Path) -> Job:
    """The job of a plan: size, step time and its parts, save and restart times, work, and price if the cluster has one.

    Raises InputError when the file cannot be read, is no plan, or lacks what a simulation needs.
    """
    try:
        plan = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except ValueError as error:
        raise InputError(f"is no JSON: {error}", where=str(file)) from None
    if not isinstance(plan, dict) or plan.get("schema") != SCHEMA:
        raise InputError(f"is no plan of schema {SCHEMA}", where=str(file), do="`argosy train` keeps one in its run")
    try:
        return _job(plan)
    except ArgosyError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"is damaged or of another kind: {error!r}", where=str(file)) from None


def _job(plan: dict[str, Any]) -> Job:
    layout, predicted = plan["layout"], plan["predicted"]
    gpus = 1
    for axis in ("dp", "fsdp", "cp", "tp", "pp"):
        gpus *= int(layout[axis])
    step_s = float(predicted["step_time_s"]["value"])
    cluster = _cluster(plan)
    per_node = min(cluster.per_node if cluster else 8, gpus)
    save_s = _value(predicted, "save_s", 10.0)
    job = Job(
        gpus=gpus,
        per_node=per_node,
        step_time_s=step_s,
        saves=save_times(save_s),
        restart=restart_phases(gpus),
        steps=_steps(predicted, step_s),
        step_phys=_phases(predicted, step_s),
        model_ranks=int(layout["cp"]) * int(layout["tp"]) * int(layout["pp"]),
        tokens_per_step=round(_value(predicted, "tokens_per_s_per_gpu", 0.0) * gpus * step_s),
    )
    if "restart_s" in predicted:
        job = job.with_restart(max(0.0, float(predicted["restart_s"]["value"]) - job.saves["storage"].restore_s))
    if cluster and cluster.price:
        job = replace(job, prices=(Price(cluster.price.amount),), currency=cluster.price.currency)
    return job


def _cluster(plan: dict[str, Any]) -> Cluster | None:
    """What the plan was made for; None when it was no file."""
    name = plan["cluster"].get("file")
    return load_cluster(str(name)) if name else None


def _value(predicted: dict[str, Any], name: str, otherwise: float) -> float:
    return float(predicted[name]["value"]) if name in predicted else otherwise


def _steps(predicted: dict[str, Any], step_s: float) -> int | None:
    """Steps of the whole run; None for a plan without a horizon."""
    if "days" not in predicted:
        return None
    return max(1, round(float(predicted["days"]["value"]) * DAY_S * float(predicted["useful_share"]["value"]) / step_s))


def _phases(predicted: dict[str, Any], step_s: float) -> dict[str, float]:
    """A step's phases: exposed communication as predicted, the bubble as waiting on the pipeline, the rest math."""
    shares: dict[str, float] = {}
    for axis, exposed in predicted.get("exposed_comm_s", {}).items():
        if exposed["value"] > 0:
            shares[f"comm.exposed.{axis}"] = float(exposed["value"]) / step_s
    bubble = _value(predicted, "bubble_s", 0.0) / step_s
    if bubble:
        shares["comm.exposed.pp"] = shares.get("comm.exposed.pp", 0.0) + bubble
    rest = 1.0 - sum(shares.values())
    if rest <= 0:
        raise ValueError("nothing is left of a step but communication")
    return {"forward": rest / 3, "backward": rest * 2 / 3, **shares}
