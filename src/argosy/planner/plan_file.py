"""`plan.json`: what was decided and predicted, kept beside a run so that its report can compare (INTERFACES 8)."""

import hashlib
import json
from dataclasses import asdict
from typing import Any

from argosy.hardware.cluster import Cluster
from argosy.planner.constants import fitted_constants
from argosy.planner.economics import Account, account
from argosy.planner.search import TERM_SPREAD, Found, to_record

SCHEMA = 1


def plan_record(
    found: Found, index: int, recipe_hash: str, cluster_file: str | None, tokens: int | None
) -> dict[str, Any]:
    """Layout `index` of `found` as the content of ``plan.json``."""
    record = to_record(found, index)
    predicted: dict[str, Any] = dict(record["predicted"])
    predicted["exposed_comm_s"] = {
        axis: {"value": s, "low": (1 - TERM_SPREAD) * s, "high": (1 + TERM_SPREAD) * s, "unit": "s"}
        for axis, s in record["exposed_comm_s"].items()
    }
    if tokens is not None:
        step = predicted["step_time_s"]
        value, low, high = (
            account(found.question, found.cluster, step[end], tokens) for end in ("value", "low", "high")
        )
        predicted |= _run(value, low, high, found.cluster)
    return {
        "schema": SCHEMA,
        "recipe_hash": recipe_hash,
        "layout": asdict(found.layout(index)),
        "cluster": {"file": cluster_file, "hash": cluster_hash(found.cluster)},
        "predicted": predicted,
        "binding": record["binding"],
        "calibration_id": calibration_id(found.cluster),
    }


def _run(value: Account, low: Account, high: Account, cluster: Cluster) -> dict[str, Any]:
    def quantity(name: str, unit: str) -> dict[str, Any]:
        return {"value": getattr(value, name), "low": getattr(low, name), "high": getattr(high, name), "unit": unit}

    return {
        "save_s": {"value": value.save_s, "low": 0.5 * value.save_s, "high": 2.0 * value.save_s, "unit": "s"},
        "restart_s": {"value": cluster.restart_s, "low": 0.5 * cluster.restart_s, "high": 2.0 * cluster.restart_s,
                      "unit": "s"},
        "useful_share": quantity("useful_share", ""),
        "days": quantity("days", "d"),
        "cost": quantity("cost", value.currency),
    }  # fmt: skip


def cluster_hash(cluster: Cluster) -> str:
    """Digest of all that a prediction takes from the cluster; not of its price or name."""
    content = {k: v for k, v in cluster.__dict__.items() if k not in ("name", "price", "part")}
    content["part"] = asdict(cluster.part)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]


def calibration_id(cluster: Cluster) -> str:
    """Which constants and which measured factors a prediction used."""
    constants = fitted_constants()
    text = json.dumps(
        [sorted(constants.shared.items()), sorted(map(str, constants.gemm.items())), sorted(cluster.measured.items())]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]
