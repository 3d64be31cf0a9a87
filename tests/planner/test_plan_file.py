"""`plan.json` holds what the report compares with."""

import json
from dataclasses import replace

from argosy.hardware.cluster_file import load_cluster
from argosy.layout.layout import Layout
from argosy.planner.plan_file import plan_record
from argosy.planner.question import from_preset
from argosy.planner.search import search

NAMES = {"step_time_s", "tokens_per_s_per_gpu", "peak_memory_bytes", "exposed_comm_s", "bubble_s", "save_s",
         "restart_s", "useful_share", "days", "cost"}  # fmt: skip


def test_the_record_is_json_names_the_interface_and_gives_the_layout_back() -> None:
    cluster = load_cluster("8xH100")
    q = from_preset("llama3-8b", accelerators=8, sequence_length=None, batch_tokens=2**20, dtype="bf16", tokens=None)
    found = search(q, cluster)
    record = json.loads(json.dumps(plan_record(found, found.best, "abc", None, 10**9)))
    assert record["predicted"].keys() == NAMES
    assert Layout.from_json(json.dumps(record["layout"])) == found.layout(found.best)
    days = record["predicted"]["days"]
    assert days["low"] < days["value"] < days["high"]
    dearer = replace(cluster, price=None)
    again = plan_record(search(q, dearer), found.best, "abc", None, None)
    assert again["cluster"]["hash"] == record["cluster"]["hash"]  # a price changes no prediction
    slower = plan_record(search(q, replace(cluster, measured={"gemm": 0.9})), found.best, "abc", None, None)
    assert slower["calibration_id"] != record["calibration_id"]
