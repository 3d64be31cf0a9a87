"""The records of a journal: one JSON object per line, `k` its kind, `q` its number in the file.

All times are integer nanoseconds of the host's CLOCK_MONOTONIC unless the name says `wall`. Readers keep kinds and
fields that they do not know, and ignore them. A *step* record with `s` = n is the update that turns the state after
n updates into the state after n + 1; a checkpoint with `s` = n holds n updates, so it holds the steps below n, and a
restore to n undoes the steps at and above n.

======== =========================================================================================================
kind     fields
======== =========================================================================================================
header   first line of each file: :class:`Header`
step     s step · t0, t1 window: from the end of the previous one to the end of this one · a self times by position
         in the header's `phys`, trailing zeros cut · n [loss, context, pad] tokens of the global batch · l loss,
         nats per token over the global batch · g gradient norm before clipping · r learning rate ·
         v earlier visits of this step in this attempt (absent: 0) · x 1 if the update was skipped ·
         u [ns in math phases without a processor, of these waiting for one] where the host is the device
span     id · p phys · t0, t1 (null: still open) · d spans around it (absent: 0) · a self times of phases inside.
         Written when opened and again, with the same id, when closed
colls    the collectives of a sampled step: see :mod:`argosy.journal.collectives`
line     the phases of a sampled step in order: see :mod:`argosy.journal.line`
device   what the device did in a profiled step: s · m [phase of the host, what the device did, ns]... · cost of
         profiling it · b [module, forward, backward, idle inside]... ns · ev number of device activities seen
memory   s · rss, peak_rss bytes of the process · parameters, gradients, optimizer bytes · of a device: allocated,
         peak, reserved, peak_reserved bytes, retries, ooms
norms    s · sq squared norm of this replica's part of the gradient, before it is summed
ckpt     t · id · s updates it holds · tier storage|memory|copy · ph start|committed|failed|coalesced · why.
         Of snapshots in memory at most one a second is told
restore  t · id · to updates it holds · tier · why failure|resume|operator|nan
attempt  (agent) t · ph start|end · exit code · signal · reason why the run stopped
anchor   t, wall, boot: all clocks at one moment
order    t · s step from which on the samples stand as follows · b samples of a step · index of the first · skipped
         stretches of indices · weights of a mixture, from which index on
data     what this rank trained on in the n steps from s: src source · tokens · loss_tokens · pad · first_seen those
         of `tokens` in the source's first epoch. On the first source also sum, over the samples of all
         (:mod:`argosy.data.served`), and r [data rank, data ranks]. At most every 50 steps, and before each checkpoint
incident t · cause · rank · detected_ns, recovered_ns: a fault, its detection and recovery
eval     t · s · loss nats per token · bpb bits per byte · tokens · bytes · full whether all held-out data
sample   t · text
decision t · what · and what belongs to it (`stop`: reason; `metric_only`: the run keeps no weights on purpose;
         `diverged`: what no checkpoint holds at the end; `target_met`, `late_kill`, `duplicate`, `unused`: kept work
         from step s on)
drop     n records that were not written before this one · why
close    t · the writer ended in order
======== =========================================================================================================

`paid.jsonl` and `price.jsonl` have no header. Paid time comes from outside the training processes, because they see
neither what came before them nor what came after a kill; an interval that was opened and never closed ends at the
last sign of life:

    {"k":"paid","dev":"cpu:0","host":H,"boot_id":B,"ph":"open|close","t":mono,"wall":W,"basis":"self_declared",
     "state":"allocated|reserved|spare"}
    {"k":"paid","dev":"cuda:0","host":H,"t0_wall":W,"t1_wall":W,"basis":"scheduler|bill","state":...}
    {"k":"price","dev":"*","from_wall":W|null,"amount":"2.49","per":"hour","currency":"USD"}
"""

import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any

from argosy import __version__
from argosy.journal.clock import anchor, boot_id, process_start_ns
from argosy.journal.phys import PHYS

VERSION = 2
"""2: `colls` and `line` instead of `coll`, `device`, `memory`, `norms`."""

LOST_BY_FAILURE = frozenset(("failure", "resume"))
"""Reasons of a restore that undo work because something broke; with any other, somebody decided it."""

STEP_BYTES = 256
SAMPLED_STEP_BYTES = 8_000
COLLS_BYTES = 3_600
LINE_BYTES = 2_000
DEVICE_BYTES = 1_900
"""Shares of a sampled step; the rest is its step record, its memory record and a `drop`."""


@dataclass(frozen=True)
class Header:
    """Whose file it is, on which clock, and how to read its arrays."""

    run: str
    attempt: int
    rank: int | None
    """None in an agent's file."""
    world: int
    device: str | None
    """`cuda:0`, or `cpu:SLOT`: on a CPU each rank is a slot that is paid for."""
    host: str
    boot_id: str
    pid: int
    t: int
    wall: int
    boot: int
    proc_start: int
    """CLOCK_MONOTONIC when the kernel started the process; up to 10 ms early."""
    seed: int = 0
    sample_every: int = 100
    """With `seed` it says which steps are sampled; see :func:`sampled`."""
    layout: dict[str, Any] = field(default_factory=dict)
    code: str = __version__
    phys: tuple[str, ...] = PHYS
    v: int = VERSION

    @classmethod
    def of_this_process(
        cls,
        run: str,
        attempt: int,
        rank: int | None,
        world: int,
        device: str | None,
        *,
        proc_start_ns: int | None = None,
        **more: Any,
    ) -> "Header":
        """Fill in host, clocks and process; `proc_start_ns` is for a process forked from a warm server."""
        return cls(
            run=run,
            attempt=attempt,
            rank=rank,
            world=world,
            device=device,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            proc_start=process_start_ns() if proc_start_ns is None else proc_start_ns,
            **(anchor() | more),
        )

    def fields(self) -> dict[str, Any]:
        return asdict(self)


def sampled(step: int, seed: int, every: int) -> bool:
    """Whether this step's collectives and phases are recorded one by one: the same on all ranks."""
    return (step + seed) % every == 0
