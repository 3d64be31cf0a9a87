"""What the earlier attempts of a run came to: where a live view starts from."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from argosy.journal.reader import read_run
from argosy.ledger.books import keep_books
from argosy.ledger.cost import account_money
from argosy.ledger.money import PriceList


@dataclass(frozen=True)
class Before:
    """Sums over earlier attempts."""

    paid_ns: int = 0
    nanos: int | None = 0
    """Their money; None where a price is unknown."""
    accounts: Counter[str] = field(default_factory=Counter)


def books_before(run_path: Path, attempt: int) -> Before:
    """The books of the attempts before `attempt`, closed: what no checkpoint held when they ended is lost."""
    whole = read_run(run_path)
    earlier = replace(
        whole,
        ranks=[file for file in whole.ranks if file.attempt < attempt],
        agents=[file for file in whole.agents if file.attempt < attempt],
        live=False,
    )
    books = keep_books(earlier, tolerant=True)
    _, nanos = account_money(earlier, books, PriceList.from_records(whole.prices), tolerant=True)
    return Before(books.paid_ns, nanos, Counter(books.accounts))
