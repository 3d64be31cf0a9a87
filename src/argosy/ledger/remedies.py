"""What to do when an account leaks: one honest line each.

A row holds for the account of that name and for all below it (``comm.exposed`` for
``comm.exposed.fsdp``); the longest name that fits wins.
"""

_REMEDIES = {
    "compute.data_wait": "put the shards on faster storage or pack them with a larger sequence length",
    "compute.h2d_copy": "use pinned memory and larger micro-batches",
    "compute.compile": "keep shapes fixed; set layout.compile = false for runs of minutes",
    "compute.gc": "freeze long-lived objects after start-up and collect between steps, on all ranks at once",
    "compute.telemetry": "raise journal.sample_every, or lower journal.profile_share",
    "compute.recompute": "set layout.recompute = 'none' if memory allows, or recompute fewer blocks",
    "compute.padding": "pack sequences (data.packing), or choose a sequence length that fits the documents",
    "compute.launch_gap": "raise layout.micro_batch_sequences or set layout.compile; look for code that sleeps",
    "compute.sync_point": "read values of the device less often and later; look for .item() and boolean masks",
    "compute.allocator": "keep shapes fixed, so that cached memory fits; leave some memory free",
    "compute.contention": "give each rank its own processors: fewer ranks, no other work, a higher quota",
    "compute.eval": "raise eval.every_steps, or set eval.tokens for the evaluations in between",
    "compute": "look at the phys × fate table",
    "comm.exposed": "raise batch.tokens per rank or layout.micro_batch_sequences, or use fewer ranks on this axis",
    "comm.transfer": "use fewer ranks on this axis, larger batches per rank, or a faster link; overlap hides it",
    "comm.wait_slow_rank": "look at who made others wait, doing what: mend or replace that rank",
    "comm.bubble": "more micro-batches per step, stages of equal length (layout.stage_layers), or another schedule",
    "comm.control": "let them agree less often; a slow rank hides here too",
    "comm": "use fewer ranks, or larger batches per rank",
    "stability.lost_work": "save more often: lower checkpoint.every_steps, or tell the truth in failures_per_day",
    "stability.skipped_step": "lower the learning rate, lengthen the warm-up, or set precision.reduce = 'fp32'",
    "stability.ckpt_block": "save less often (raise checkpoint.every_steps) or to faster storage",
    "stability.detect": "lower resilience.collective_timeout_s; let a supervisor watch the heartbeat",
    "stability.terminate": "shorten the grace period of the launcher",
    "stability.reschedule": "restart at once and automatically, or release the devices",
    "stability.provision": "prepare images and data before the devices are allocated",
    "stability.process_start": "train longer per start; put the environment on a local disk",
    "stability.import": "train longer per start; put the environment on a local disk",
    "stability.rendezvous": "find the rank that starts late",
    "stability.comm_init": "train longer per start; create fewer groups",
    "stability.model_init": "train longer per start",
    "stability.ckpt_load": "put checkpoints on faster storage",
    "stability.data_seek": "prepare data before devices are paid (`argosy data build`); the cache spares the next run",
    "stability.calibrate": "nothing: it is cached, and the next run on this kind of machine skips it",
    "stability.warmup": "train longer per start; this is compile, allocation and first connections",
    "stability.teardown": "write the last checkpoint to faster storage",
    "stability": "look at the table of attempts",
    "decision.idle_reservation": "release devices between attempts, or start the next one sooner",
    "decision.rollback": "watch the loss so that a rollback reaches back less far",
    "decision.diverged": "set a stop rule: objective.patience_evals",
    "decision.beyond_target": "set objective.target_loss",
    "decision": "look at the phys × fate table",
    "unattributed.no_telemetry": "find out why the rank wrote nothing (disk full, killed at once, folder not shared)",
    "unattributed.torn": "read the refusals below; look at the disk",
    "unattributed.clock": "synchronise the clocks",
    "unattributed": "wrap what runs there in a recorder phase (argosy.journal) so that it gets a name",
}


def remedy(account: str) -> str:
    """What to do about time in `account`; useful time needs no remedy and has none (KeyError)."""
    name = account
    while name not in _REMEDIES:
        name, dot, _ = name.rpartition(".")
        if not dot:
            raise KeyError(f"no remedy for account {account}")
    return _REMEDIES[name]
