"""A report as a text file for Prometheus, such as node_exporter's textfile collector reads.

Base units, `_total` for what only rises, ratios from 0 to 1. Accounts may still be reclassified while a run goes on,
so useful time that no checkpoint holds is a gauge and the counters are of accounts that are final. Step, rank and time
are never labels: the accounts are a closed list, so a run has a bounded number of series.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from argosy.ledger.report_model import Report

Sample = tuple[str, Mapping[str, str], float | Fraction]


def prometheus_text(report: Report) -> str:
    """The file's content."""
    lines: list[str] = []
    for name, kind, meaning, samples in _metrics(report):
        written = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
        if written:
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *written]
    return "".join(f"{line}\n" for line in lines)


Labelled = list[tuple[dict[str, str], float | Fraction]]


def _metrics(report: Report) -> Iterator[tuple[str, str, str, Labelled]]:
    run = {"run": report.run.id}
    final = {name: line for name, line in report.accounts.items() if name != "useful.provisional"}

    def split(name: str) -> dict[str, str]:
        layer, _, account = name.partition(".")
        return run | {"layer": layer, "account": account}

    seconds: Labelled = []
    for name, line in final.items():
        parts = {"imputed": line.imputed_ns, "estimated": line.estimated_ns}
        parts["measured"] = line.ns - sum(parts.values())
        seconds += [(split(name) | {"quality": quality}, Fraction(ns, 10**9)) for quality, ns in parts.items() if ns]
    yield "ledger_gpu_seconds_total", "counter", "Paid device-seconds by account.", seconds
    paid: Labelled = [(run, Fraction(report.paid_ns, 10**9))]
    yield "ledger_paid_gpu_seconds_total", "counter", "Paid device-seconds.", paid
    costs: Labelled = [
        (split(name) | {"currency": report.currency or ""}, Fraction(line.money))
        for name, line in final.items()
        if line.money is not None
    ]
    yield "ledger_cost_total", "counter", "Cost by account.", costs
    at_risk: Labelled = [(run, Fraction(report.at_risk_ns, 10**9))]
    yield "ledger_at_risk_gpu_seconds", "gauge", "Useful device-seconds that no checkpoint holds yet.", at_risk
    tokens: Labelled = [
        (run | {"fate": "kept", "class": "loss"}, report.work.kept_tokens),
        (run | {"fate": "lost", "class": "loss"}, report.work.lost_tokens),
    ]
    yield "ledger_tokens_total", "counter", "Tokens by fate.", tokens
    yield "ledger_goodput_ratio", "gauge", "Useful share of paid time.", [(run, report.layers["useful"].share)]
    if report.utilisation.mfu is not None:
        mfu: Labelled = [(run, report.utilisation.mfu)]
        yield "ledger_model_flops_utilization_ratio", "gauge", "Model FLOPs by peak FLOPs.", mfu
    unknown: Labelled = [
        (run | {"reason": name.partition(".")[2]}, line.share)
        for name, line in report.accounts.items()
        if name.startswith("unattributed.")
    ]
    yield "ledger_unattributed_ratio", "gauge", "Share of paid time in no account.", unknown
    waits: dict[tuple[str, str], int] = {}
    for cause in report.causes:
        key = cause.host or "unknown", cause.doing
        waits[key] = waits.get(key, 0) + cause.ns
    caused: Labelled = [
        (run | {"culprit_host": host, "cause": doing}, Fraction(ns, 10**9)) for (host, doing), ns in waits.items()
    ]
    yield "ledger_wait_caused_seconds_total", "counter", "Device-seconds that others waited, by culprit.", caused


def _labels(labels: Mapping[str, str]) -> str:
    written = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
    return f"{{{written}}}" if written else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float | Fraction) -> str:
    """Nine decimals are exact for nanoseconds."""
    return f"{float(value):.9f}".rstrip("0").rstrip(".") if isinstance(value, Fraction) else repr(value)
