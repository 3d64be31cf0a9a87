"""What a run has been paid for so far: what its budget counts from."""

from argosy.registry.run_folder import RunFolder


def paid_before_ns(run: RunFolder) -> int:
    """Paid time of all earlier attempts, summed over devices [ns]; attempts that were killed count up to their last
    sign of life, as in the report."""
    if not run.paid_file.exists():
        return 0
    from argosy.journal.reader import read_run  # not needed, and not loaded, by a run's first attempt
    from argosy.ledger.books import keep_books

    journal = read_run(run.path)
    journal.live = False  # the lock that makes it look alive is the caller's
    return keep_books(journal, tolerant=True).paid_ns
