"""A whole run folder on disk that a test lets grow, record by record, while somebody follows it; times in seconds."""

import json

from argosy.journal.phys import INDEX, PHYS
from argosy.recipe.load import parse_recipe
from argosy.registry.run_folder import RunFolder

S = 10**9
WALL_S = 1_700_000_000
"""Wall-clock second of monotonic second 0: 2023-11-14T22:13:20Z."""
RECIPE = """
[run]
name = "written"
[batch]
tokens = 512
[objective]
tokens = 5120
"""


class GrowingRun:
    """A run of `world` ranks on one host, whose clock `now_s` the test sets."""

    def __init__(self, folder, world=2, price="3.6"):
        self.recipe = parse_recipe(RECIPE)
        self.run = RunFolder.create(folder, self.recipe)
        self.path = self.run.path
        self.world = world
        self.attempt = 0
        self.numbers = {}
        self.now_s = 0
        if price is not None:
            self.price(price)

    def price(self, amount, from_s=None, currency="USD", dev="*"):
        start = None if from_s is None else round((WALL_S + from_s) * S)
        row = {"k": "price", "dev": dev, "from_wall": start, "amount": amount, "per": "hour", "currency": currency}
        append(self.run.price_file, row)

    def paid(self, phase, at_s, **more):
        for rank in range(self.world):
            place = {"dev": f"cpu:{rank}", "host": "here", "boot_id": "b"}
            stamps = {"t": round(at_s * S), "wall": round((WALL_S + at_s) * S)}
            row = {"k": "paid", "ph": phase, "basis": "self_declared", "state": "allocated"}
            append(self.run.paid_file, row | place | stamps | more)

    def begin(self, at_s=0.0, *, header_after_s=0.0):
        """The launcher opens the next attempt and its paid time, and all ranks write their headers."""
        self.attempt = self.run.claim_attempt()
        self.paid("open", at_s)
        self.write("agent", self.header(None, at_s), {"k": "attempt", "t": round(at_s * S), "ph": "start"})
        for rank in range(self.world):
            self.write(rank, self.header(rank, at_s + header_after_s))

    def end(self, at_s, **how):
        self.write("agent", {"k": "attempt", "t": round(at_s * S), "ph": "end"} | how)
        self.paid("close", at_s)

    def header(self, rank, at_s):
        device = None if rank is None else f"cpu:{rank}"
        place = {"run": "r", "attempt": self.attempt, "rank": rank, "world": self.world, "device": device}
        t = round(at_s * S)
        clocks = {"t": t, "wall": WALL_S * S + t, "boot": t, "proc_start": t}
        return {"k": "header", "v": 1, "host": "here", "boot_id": "b", "pid": 1, "phys": PHYS} | place | clocks

    def file(self, rank):
        if rank == "agent":
            return self.run.agent_file(self.attempt, "here")
        return self.run.rank_file(self.attempt, rank)

    def write(self, rank, *records):
        """Append records to a rank's file, numbering them."""
        for record in records:
            number = self.numbers.get(self.file(rank), -1) + 1
            self.numbers[self.file(rank)] = number
            append(self.file(rank), record | {"q": number})

    def all(self, *records):
        """Append the same records to every rank's file."""
        for rank in range(self.world):
            self.write(rank, *records)


def append(file, record):
    with file.open("a") as stream:
        stream.write(json.dumps(record) + "\n")


def step(number, t0, t1, loss=5.0, skipped=False, tokens=(512, 0, 0), **seconds):
    """A step record; seconds by phase, with ``__`` for a dot."""
    times = [0] * len(PHYS)
    for name, amount in seconds.items():
        times[INDEX[name.replace("__", ".")]] = round(amount * S)
    line = {"k": "step", "s": number, "t0": round(t0 * S), "t1": round(t1 * S), "a": times, "n": list(tokens)}
    return line | {"l": loss, "g": 1.0, "r": 1e-3} | ({"x": 1} if skipped else {})


def span(number, name, t0, t1, **more):
    """A span record; `t1` None: still open."""
    end = None if t1 is None else round(t1 * S)
    return {"k": "span", "id": number, "p": name, "t0": round(t0 * S), "t1": end} | more


def event(kind, at_s, **fields):
    """Any other record."""
    return {"k": kind, "t": round(at_s * S)} | fields


def committed(updates, at_s, tier="storage", phase="committed"):
    """A checkpoint record."""
    return event("ckpt", at_s, id=f"step-{updates}", s=updates, tier=tier, ph=phase)
