"""Drives ml-goodput-measurement with events at given times; run by its own interpreter, see bench/ledger_truth.py.

Reads JSON scenarios from stdin, each a list of [method of GoodputRecorder, time in s, further arguments], and prints
for each the share of time that its calculator calls productive and its parts of the rest, as shares too.
"""

import datetime
import json
import sys
import tempfile

from ml_goodput_measurement.src import goodput

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Memory:
    """Stands for the cloud's log: what was written is read back."""

    def __init__(self) -> None:
        self.job_start_time = None
        self.entries: list[dict] = []

    def write_cloud_logging_entry(self, entry: dict) -> None:
        self.entries.append(entry)

    def flush(self) -> None:
        pass

    def read_cloud_logging_entries(self, *_: object, **__: object):
        return list(self.entries), (None, None)


def run(events: list) -> dict:
    log = Memory()
    recorder = goodput.GoodputRecorder("job", "log", True, log)
    for method, at_s, *more in events:
        at = EPOCH + datetime.timedelta(seconds=at_s)
        getattr(recorder, f"record_{method}")(*more[:1], at) if method == "step_start_time" else (
            getattr(recorder, f"record_{method}")(at, *more)
        )
    with tempfile.TemporaryDirectory() as cache:
        calculator = goodput.GoodputCalculator("job", "log", log, cache_dir=cache)
        share, parts, last = calculator.get_job_goodput(include_badput_breakdown=True)
    shares = {}
    for kind, value in parts.items():
        for name, amount in value.items() if isinstance(value, dict) else [(None, value)]:
            if amount:
                shares[kind.name.lower() + (f".{name}" if name else "")] = float(amount) / 100
    return {"productive_share": share / 100, "unproductive": shares, "last_step": last}


def main() -> None:
    found = []
    for events in json.load(sys.stdin):
        try:
            found.append(run(events))
        except Exception as error:
            found.append({"error": f"{type(error).__name__}: {error}"})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
