"""Opening and closing of paid time, and prices: what the ledger divides up.

Without a scheduler or a bill the launcher declares it: a device is paid from the launcher's start until it has ended
the attempt. If the launcher is killed, no close is written and the ledger closes from the last sign of life.
"""

import socket
import time
from collections.abc import Sequence
from typing import Any

from argosy.journal.clock import boot_id, mono_ns
from argosy.journal.reader import read_rows
from argosy.launch.append import append_records
from argosy.recipe.schema import BudgetTable
from argosy.registry.run_folder import RunFolder


def open_paid(run: RunFolder, devices: Sequence[str], start_ns: int, *, hold: bool) -> int:
    """Declare `devices` paid from `start_ns` (monotonic) on, and return the start that was written.

    With `hold` they were paid, as a reservation, since they were last closed, too. Paid intervals of one device never
    overlap: a launcher that followed another within a clock tick starts where that one ended, and one that follows a
    killed launcher (which closed nothing) starts now, since workers may have lived after `start_ns`.
    """
    boot, host = boot_id(), socket.gethostname()
    last = {device: record for device in devices if (record := _last_record(run, device, host))}
    if any(record["ph"] == "open" for record in last.values()):
        start_ns = mono_ns()
    ends_ns = {device: _on_this_boot_ns(record, boot) for device, record in last.items()}
    start_ns = max([start_ns, *ends_ns.values()])
    records = []
    for device in devices:
        if hold and device in last and last[device]["ph"] == "close":
            records.append(_record(device, "open", ends_ns[device], "reserved"))
            records.append(_record(device, "close", start_ns, "reserved"))
        records.append(_record(device, "open", start_ns, "allocated"))
    append_records(run.paid_file, records)
    return start_ns


def close_paid(run: RunFolder, devices: Sequence[str], end_ns: int) -> None:
    """End the paid time of `devices` at `end_ns` (monotonic)."""
    append_records(run.paid_file, [_record(device, "close", end_ns, "allocated") for device in devices])


def declare_price(run: RunFolder, budget: BudgetTable) -> None:
    """Write the recipe's price if it is not the one in force: from the beginning if it is the first, else from now.

    A recipe without a price changes nothing.
    """
    if budget.price_per_device_hour is None:
        return
    price = {"amount": str(budget.price_per_device_hour), "per": "hour", "currency": budget.currency}
    known = [record for record in read_rows(run.price_file) if record.get("dev") == "*"]
    if known and {key: known[-1].get(key) for key in price} == price:
        return
    from_wall = time.time_ns() if known else None
    append_records(run.price_file, [{"k": "price", "dev": "*", "from_wall": from_wall} | price])


def _record(device: str, phase: str, at_ns: int, state: str) -> dict[str, Any]:
    return {
        "k": "paid",
        "dev": device,
        "host": socket.gethostname(),
        "boot_id": boot_id(),
        "ph": phase,
        "t": at_ns,
        "wall": time.time_ns() - (mono_ns() - at_ns),
        "basis": "self_declared",
        "state": state,
    }


def _last_record(run: RunFolder, device: str, host: str) -> dict[str, Any] | None:
    last = None
    for record in read_rows(run.paid_file):
        if record.get("ph") in ("open", "close") and record["dev"] == device and record["host"] == host:
            last = record
    return last


def _on_this_boot_ns(record: dict[str, Any], boot: str) -> int:
    """When `record` was written, on this boot's monotonic clock (negative if it was before the boot)."""
    if record["boot_id"] == boot:
        return int(record["t"])
    return mono_ns() - max(0, time.time_ns() - int(record["wall"]))
