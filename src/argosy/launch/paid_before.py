"""What a run has been paid for so far: what its budget counts from."""

from argosy.registry.run_folder import RunFolder


def paid_before_ns(run: RunFolder) -> int:
    """Paid time of all attempts so far, summed over devices [ns]; those that were killed count up to their last sign
    of life, as in the report."""
    attempts = run.attempts()
    if not attempts:
        return 0
    from argosy.ledger.before import books_before  # a run's first attempt needs no books, and does not load them

    return books_before(run.path, attempts[-1] + 1).paid_ns
