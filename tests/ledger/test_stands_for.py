"""One file that stands for many ranks gives the books of the many."""

from fractions import Fraction

from written import S, WrittenRun

from argosy.ledger.books import Books, keep_books
from argosy.ledger.cost import CostCurve, account_money
from argosy.ledger.money import PriceList

PRICES = PriceList.from_records([{"dev": "*", "amount": "2.50", "per": "hour", "currency": "USD"}])


def run(ranks: int, stands_for: int, paid_s: int = 40) -> WrittenRun:
    """A kill after the third step, a restart from the second, on `ranks` files of `stands_for` devices each."""
    written = WrittenRun()
    world = ranks * stands_for
    for attempt, start in ((1, 0), (2, 20 * S)):
        agent = written.agent(attempt, start, world=world)
        for number in range(ranks):
            rank = written.rank(attempt, start, rank=number, world=world)
            rank.rows[0]["stands_for"] = stands_for
            rank.span("startup.model_init", start, start + 2 * S)
            first = 0 if attempt == 1 else 2
            if attempt == 2:
                rank.restore(2, start + 2 * S, why="failure")
            rank.steps(first, first + 2, start + 2 * S, 3 * S)
            rank.ckpt(first + 2, start + 8 * S)
            rank.steps(first + 2, first + 3, start + 8 * S, 3 * S)
        agent.end(start + 13 * S, exit=1 if attempt == 1 else 0)
    for number in range(ranks):
        written.paid(0, paid_s * S, device=number)
    for row in written.paid_rows:
        row["n"] = stands_for
    return written


def figures(books: Books) -> object:
    return books.paid_ns, books.crosstab, books.imputed, books.slices, [p.legs for p in books.postings], [
        (attempt.accounts, attempt.world) for attempt in books.attempts
    ]  # fmt: skip


def test_six_devices_in_one_file_or_in_six() -> None:
    many, one = (run(*shape).journal() for shape in ((6, 1), (1, 6)))
    edges = [keep_books(many).attempts[1].start_ns + 3 * S]
    each, together = keep_books(many, edges_ns=edges), keep_books(one, edges_ns=edges)
    assert figures(each) == figures(together)
    assert "unattributed.no_telemetry" not in together.accounts
    assert account_money(many, each, PRICES) == account_money(one, together, PRICES)
    curves = [CostCurve(((n, d.intervals) for n, d in b.devices.items()), PRICES) for b in (each, together)]
    assert curves[0](edges[0]) == curves[1](edges[0])


def test_more_nanoseconds_than_64_bits_hold() -> None:
    journal = run(1, 10**6, paid_s=40_000).journal()
    books = keep_books(journal)
    assert books.paid_ns == 40_000 * S * 10**6 > 2**63
    _, nanos = account_money(journal, books, PRICES)
    assert nanos == round(Fraction(25 * 40_000 * 10**6, 10 * 3600) * 10**9)
