"""What each leak means in plain words, and what to do about it: one honest line each.

A row holds for the account of that name and for all below it (``comm.exposed`` for
``comm.exposed.fsdp``); the longest name that fits wins.
"""

_ROWS: dict[str, tuple[str, str]] = {
    # account: (what it is, what to do)
    "useful": ("model math that the kept weights are made of", "keep it"),
    "useful.provisional": ("model math that no checkpoint holds yet", "it is kept at the next checkpoint"),
    "compute.data_wait": (
        "ranks waited for the next batch",
        "put the shards on faster storage or pack them with a larger sequence length",
    ),
    "compute.h2d_copy": ("batches were copied to the device", "use pinned memory and larger micro-batches"),
    "compute.compile": (
        "graphs were traced and compiled outside start-up",
        "keep shapes fixed; set layout.compile = false for runs of minutes",
    ),
    "compute.gc": (
        "Python's garbage collector stopped a rank",
        "freeze long-lived objects after start-up and collect between steps, on all ranks at once",
    ),
    "compute.telemetry": ("the run wrote about itself", "raise journal.sample_every"),
    "compute.eval": (
        "the model was evaluated instead of trained",
        "raise eval.every_steps, or set eval.tokens for the evaluations in between",
    ),
    "compute": ("devices were busy with something else than model math", "look at the phys × fate table"),
    "comm.exposed": (
        "compute stood still for a transfer or for a slower rank",
        "raise batch.tokens per rank or layout.micro_batch_sequences, or use fewer ranks on this axis",
    ),
    "comm.control": (
        "ranks agreed on things: barriers, logging reductions, stop requests",
        "let them agree less often; a slow rank hides here too",
    ),
    "comm": ("ranks waited for each other", "use fewer ranks, or larger batches per rank"),
    "stability.lost_work": (
        "steps were computed and then lost with a failure",
        "save more often: lower checkpoint.every_steps, or set checkpoint.failures_per_day to what you see",
    ),
    "stability.skipped_step": (
        "updates were thrown away because a gradient was not finite",
        "lower the learning rate, lengthen the warm-up, or set precision.reduce = 'fp32'",
    ),
    "stability.ckpt_block": (
        "training stood still while a checkpoint was written",
        "save less often (raise checkpoint.every_steps) or to faster storage",
    ),
    "stability.detect": (
        "an attempt was dead and nobody had noticed",
        "lower resilience.collective_timeout_s, and start under a supervisor that watches the heartbeat",
    ),
    "stability.terminate": ("a failed attempt took its time to end", "shorten the grace period of the launcher"),
    "stability.reschedule": (
        "devices were held between two attempts",
        "restart at once and automatically, or release the devices",
    ),
    "stability.provision": (
        "devices were paid before the first process ran",
        "prepare images and data before the devices are allocated",
    ),
    "stability.process_start": (
        "processes were being started",
        "train longer per start; put the environment on a local disk",
    ),
    "stability.import": (
        "Python modules were being imported",
        "train longer per start; put the environment on a local disk",
    ),
    "stability.rendezvous": ("ranks waited for the last one to arrive", "find the rank that starts late"),
    "stability.comm_init": ("communicators were being set up", "train longer per start; create fewer groups"),
    "stability.model_init": ("the model was built and sharded", "train longer per start"),
    "stability.ckpt_load": ("a checkpoint was read", "put checkpoints on faster storage"),
    "stability.data_seek": ("the loader moved to its position", "use token shards, which seek in constant time"),
    "stability.calibrate": (
        "the machine's peak was measured",
        "nothing: it is cached, and the next run on this kind of machine skips it",
    ),
    "stability.warmup": (
        "first steps were slower than settled ones",
        "train longer per start; this is compile, allocation and first connections",
    ),
    "stability.teardown": ("processes were ending after the last step", "write the last checkpoint to faster storage"),
    "stability": ("failures and restarts", "look at the table of attempts"),
    "decision.idle": (
        "devices were paid and no process of this run was on them",
        "release devices between attempts, or start the next one sooner",
    ),
    "decision.rollback": (
        "steps were discarded on purpose",
        "watch the loss so that a rollback reaches back less far",
    ),
    "decision.diverged": ("steps after the run had diverged", "set a stop rule: objective.patience_evals"),
    "decision.beyond_target": ("training went on after the target was met", "set objective.target_loss"),
    "decision": ("work that should not have run, or not then", "look at the phys × fate table"),
    "unattributed.no_telemetry": (
        "a rank left no journal",
        "find out why the rank wrote nothing (disk full, killed at once, folder not shared)",
    ),
    "unattributed.torn": ("a journal is damaged", "read the refusals below; look at the disk"),
    "unattributed.clock": ("the clocks of two machines disagree", "synchronise the clocks"),
    "unattributed": (
        "no span covers it",
        "wrap what runs there in a recorder phase (argosy.journal) so that it gets a name",
    ),
}


def meaning(account: str) -> str:
    """What time in `account` is, in plain words."""
    return _row(account)[0]


def remedy(account: str) -> str:
    """What to do when `account` leaks, in one line."""
    return _row(account)[1]


def _row(account: str) -> tuple[str, str]:
    name = account
    while name not in _ROWS:
        name, dot, _ = name.rpartition(".")
        if not dot:
            raise KeyError(f"account {account} is in no layer")
    return _ROWS[name]
