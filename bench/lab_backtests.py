"""Forecasts of the largest recorded runs from the smaller ones, by one method, registered before they are scored.

    python bench/lab_backtests.py --rolling            inside the training rows only
    python bench/lab_backtests.py --register REASON    append the method's hash to bench/lab_registrations.jsonl
    python bench/lab_backtests.py --score              forecast the test rows; only by the last registered method

Data: the tables of training results beside the checkout (shared/data/scaling), or --data FOLDER.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from argosy.lab.backtest import Scored, rolling, score, summary
from argosy.lab.entry import enter, roles_of
from argosy.lab.forecast import forecaster
from argosy.lab.gap import forecast_gap, match
from argosy.lab.method import method_hash
from argosy.lab.optimum import at_optimum
from argosy.lab.runs import Runs
from argosy.lab.schedules import Curve, fit_schedules
from argosy.lab.table import Table, read_table
from argosy.laws.annealing import Schedule

HERE = Path(__file__).resolve().parent
REGISTRATIONS = HERE / "lab_registrations.jsonl"
PORIAN_GROUP = ["dataset", "hparams", "warmup", "decay", "flop_count", "loss_split"]
OLMO_LOSSES = ["ce_c4", "ce_dolma_cc", "ce_pile", "ce_wikitext103", "ce_books", "ce_s2orc"]
OLMO_TRAIN, OLMO_TEST = ["size=190M|370M|760M|1B"], ["size=3B"]
PORIAN_TRAIN = "flops<=1.6e18"
REPEATED, REPEATED_TRAIN, REPEATED_TEST = ["epochs<=8", "in_authors_fit=1"], ["flops_6nd<=1e21"], ["flops_6nd>1e21"]
SCHEDULES_TRAIN = ("cosine_24000", "constant_24000", "wsdcon_9")
SCHEDULE_TESTED = "wsd"
OPTIMIZERS = ("adamw", "muon", "nadamw", "soap")


def runs_of(table: Table, x: str = "N,D", y: str = "loss", *, best: bool = False, wanted: bool = True) -> Runs:
    return enter(table, roles_of(table, x.split(","), y), best=best, wanted=wanted).runs


def training_sets(data: Path) -> Iterator[tuple[str, Runs]]:
    """Every recipe's training rows, by name; no test row of any target is in them."""
    porian = read_table(data / "porian.csv")
    for hparams, rows in (("tuned", [PORIAN_TRAIN]), ("base", [])):
        for key, part in porian.filter([f"hparams={hparams}", *rows]).groups(PORIAN_GROUP):
            yield "porian " + " ".join(key.values()), runs_of(part)
    olmo = read_table(data / "olmo_ladder.csv").filter(OLMO_TRAIN)
    for loss in OLMO_LOSSES:
        yield f"olmo {loss}", runs_of(olmo, y=loss)
    yield "datablations", runs_of(read_table(data / "datablations.csv").filter([*REPEATED, *REPEATED_TRAIN]))
    optimizers = read_table(data / "optimizers.csv").filter(["size!=1.2b"])
    for name in OPTIMIZERS:
        yield f"optimizers {name}", runs_of(optimizers.filter([f"optimizer={name}"]), "N=N_non_embed,D", best=True)


def porian(data: Path) -> Iterator[Scored]:
    """Loss at the optimum of the largest budget from rows up to 1.6e18 FLOPs; truth: the authors' interpolation."""
    table, optima = read_table(data / "porian.csv"), read_table(data / "porian_optima.csv")
    for key, part in table.filter(["hparams=tuned", PORIAN_TRAIN]).groups(PORIAN_GROUP):
        past = runs_of(part)
        row = optima.filter([f"{name}={value}" for name, value in key.items()])
        row = row.take([int(np.argmax(row.numbers("flops")))])  # 2.56e19; one configuration ends at 1.28e19
        flops = row.numbers("flops")
        model = forecaster(past)
        target = at_optimum(model, float(flops[0]))
        rest = Runs(target.parameters, target.tokens, target.compute_flops, row.numbers("loss_opt"))
        yield score("porian tuned " + " ".join(key.values()), past, rest, model)


def porian_curve(data: Path) -> Iterator[Scored]:
    """The same from the authors' interpolated optima alone: the recipe's own optimal curve, one axis."""
    optima = read_table(data / "porian_optima.csv").filter(["hparams=tuned"])
    for key, part in optima.groups(PORIAN_GROUP):
        past = runs_of(part.filter([PORIAN_TRAIN]), "flops", "loss_opt")
        last = part.take([int(np.argmax(part.numbers("flops")))])
        yield score(
            "porian own curve " + " ".join(key.values()), past, runs_of(last, "flops", "loss_opt", wanted=False)
        )


def olmo(data: Path) -> Iterator[Scored]:
    """Final losses of the 3B runs from 190M to 1B."""
    table = read_table(data / "olmo_ladder.csv")
    for loss in OLMO_LOSSES:
        past, rest = runs_of(table.filter(OLMO_TRAIN), y=loss), runs_of(table.filter(OLMO_TEST), y=loss, wanted=False)
        yield score(f"olmo {loss} → 3B", past, rest)


def datablations(data: Path) -> Iterator[Scored]:
    """Runs above 1e21 FLOPs from those below, up to 8 epochs."""
    table = read_table(data / "datablations.csv").filter(REPEATED)
    past, rest = runs_of(table.filter(REPEATED_TRAIN)), runs_of(table.filter(REPEATED_TEST), wanted=False)
    yield score("datablations ≤ 8 epochs", past, rest)


def optimizers(data: Path) -> Iterator[Scored]:
    """1.2B from 130M to 520M, each optimizer's own law."""
    table = read_table(data / "optimizers.csv")
    for name in OPTIMIZERS:
        own = table.filter([f"optimizer={name}"])
        past = runs_of(own.filter(["size!=1.2b"]), "N=N_non_embed,D", best=True)
        rest = runs_of(own.filter(["size=1.2b"]), "N=N_non_embed,D", best=True, wanted=False)
        yield score(f"optimizers {name} → 1.2B", past, rest)


def curves(data: Path) -> dict[str, dict[str, Curve]]:
    """Curves by model and schedule."""
    table = read_table(data / "lr_schedule_curves.csv")
    found: dict[str, dict[str, Curve]] = {}
    for key, part in table.groups(["model", "schedule"]):
        order = np.argsort(part.numbers("step"))
        steps, rates, loss = (part.numbers(name)[order] for name in ("step", "lr", "loss"))
        found.setdefault(key["model"], {})[key["schedule"]] = Curve(Schedule(steps, rates), loss)
    return found


def schedules(data: Path) -> list[dict[str, object]]:
    """Schedules never seen, from cosine, constant and one two-step run of the same model and horizon."""
    rows: list[dict[str, object]] = []
    for model, by_name in curves(data).items():
        fitted = fit_schedules({name: by_name[name] for name in SCHEDULES_TRAIN})
        for name, curve in by_name.items():
            if name in SCHEDULES_TRAIN:
                continue
            error = fitted.losses(curve.schedule) / curve.loss - 1
            low, high = fitted.interval(curve.schedule, 0.9)
            rows.append(
                {
                    "model": model,
                    "schedule": name,
                    "mean_error": float(np.abs(error).mean()),
                    "worst_error": float(np.abs(error).max()),
                    "final_error": float(error[-1]),
                    "coverage_90": float(((low <= curve.loss) & (curve.loss <= high)).mean()),
                    "half_width_90": float(((high - low) / 2 / curve.loss).mean()),
                }
            )
    return rows


def gap(data: Path) -> list[dict[str, object]]:
    """Gains over AdamW at 1.2B from matched cells of 130M to 520M."""
    table = read_table(data / "optimizers.csv")
    arms = {}
    for name in OPTIMIZERS:
        own = table.filter([f"optimizer={name}"])
        arms[name] = [
            runs_of(own.filter([size]), "N=N_non_embed,D", best=True, wanted=False)
            for size in ("size!=1.2b", "size=1.2b")
        ]
    rows: list[dict[str, object]] = []
    for name in OPTIMIZERS[1:]:
        truth = match(arms["adamw"][1], arms[name][1])
        said = forecast_gap(match(arms["adamw"][0], arms[name][0]), truth.parameters, truth.tokens)
        for one, tokens, got in zip(said, truth.tokens, truth.gap, strict=True):
            low, high = one.interval(0.9)
            rows.append(
                {"variant": name, "D": float(tokens), "forecast": one.gap, "interval_90": [low, high], "got": got}
            )
    return rows


TARGETS: tuple[Callable[[Path], Iterator[Scored]], ...] = (porian, porian_curve, olmo, datablations, optimizers)


def show(scored: list[Scored]) -> None:
    for one in scored:
        if not len(one.rest):
            print(f"{one.name:64s} refused")
            continue
        beyond = one.rest.compute_flops.max() / one.past.compute_flops.max()
        print(
            f"{one.name:64s} {len(one.past):4d} → {len(one.rest):3d}  ×{beyond:7.1f}  "
            f"error {np.abs(one.error).mean():7.3%} ({one.error.mean():+.3%})  "
            f"held {one.covered().mean():4.0%}  ± {one.half_width.mean():.3%}"
        )
    print({name: round(value, 5) for name, value in summary(scored).items()})


def register(reason: str) -> None:
    entry = {"method": method_hash(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "reason": reason}
    with REGISTRATIONS.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry, ensure_ascii=False) + "\n")
    print(f"registered {entry['method']}; commit {REGISTRATIONS.name} before --score")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data" / "scaling")
    parser.add_argument("--rolling", action="store_true", help="rolling origins inside the training rows")
    parser.add_argument("--register", metavar="REASON", help="append this method to the registrations")
    parser.add_argument("--score", action="store_true", help="forecast the test rows")
    parser.add_argument("--json", type=Path, help="write the results here")
    options = parser.parse_args()
    if options.register:
        register(options.register)
    results: dict[str, object] = {"method": method_hash()}
    if options.rolling:
        scored = [one for name, runs in training_sets(options.data) for one in rolling(runs, name)]
        show(scored)
        results["rolling"] = summary(scored)
    if options.score:
        last = json.loads(REGISTRATIONS.read_text(encoding="utf-8").splitlines()[-1])["method"]
        if last != method_hash():
            sys.exit(f"method {method_hash()} is not the last registered ({last}): --register it, with the reason")
        scored = [one for target in TARGETS for one in target(options.data)]
        show(scored)
        results |= {"score": [one.to_json() for one in scored], "summary": summary(scored)}
        results["schedules"], results["gap"] = schedules(options.data), gap(options.data)
        for kind in ("schedules", "gap"):
            print(kind)
            for row in results[kind]:  # type: ignore[attr-defined]
                print("  ", {k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
