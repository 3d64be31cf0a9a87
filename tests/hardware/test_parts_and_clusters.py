"""Catalogue of parts and clusters: complete, consistent, and helpful about names."""

from fractions import Fraction
from pathlib import Path

import pytest

from argosy.errors import InputError, UsageError
from argosy.hardware.catalogue import catalogue
from argosy.hardware.cluster_file import load_cluster, parse_cluster
from argosy.hardware.parts import part, parts


def test_every_part_is_plausible_and_says_where_it_was_read() -> None:
    for p in parts():
        assert p.source
        assert p.date
        assert p.peak_flops_per_s
        assert 0.3 < p.sustained_share < 1
        assert all(p.matmul_flops_per_s[d] < p.peak_flops_per_s[d] for d in p.matmul_flops_per_s)
        assert 16 * 2**30 <= p.memory_bytes < 400 * 2**30
        assert p.nic_bytes_per_s <= p.link_bytes_per_s
        assert p.price_usd_per_h is None or p.price_source


def test_parts_and_accelerators_have_one_name() -> None:
    assert {a.id for a in catalogue()} <= {p.id for p in parts()}


def test_names_any_case_and_near_misses() -> None:
    assert part("h100") is part("H100-SXM5-80GB") is part("H100-80GB")
    with pytest.raises(UsageError, match=r"unknown accelerator 'H10' → did you mean .*H100.* otherwise describe it"):
        part("H10")


def test_shorthand() -> None:
    c = load_cluster("64xGB200")
    assert (c.count, c.per_node, c.domain, c.nodes) == (64, 4, 64, 16)
    assert load_cluster("2 x 4090").domain == 2
    assert load_cluster("64xH100").resized(8).count == 8


def test_cluster_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(
        'accelerator = "A100"\ncount = 32\nnetwork = "cloud"\nnic_gbit_s = 50\n'
        'price = { amount = "1.10", spot = 0.4, currency = "EUR", date = "2026-11" }\nmeasured = { gemm = 0.95 }\n'
    )
    c = load_cluster(str(path))
    assert (c.name, c.count, c.network, c.nic_bytes_per_s) == ("lab", 32, "cloud", 6.25e9)
    assert c.price is not None
    assert (c.price.amount, c.price.spot, c.price.currency) == (Fraction("1.10"), Fraction("0.4"), "EUR")
    assert c.measured == {"gemm": 0.95}


def test_a_part_of_ones_own() -> None:
    own = {"name": "mine", "peak_tflops": {"bf16": 100}, "memory_gib": 64, "memory_gb_s": 1000}
    c = parse_cluster({"count": 4, "part": own})
    assert c.part.peak_flops_per_s["bf16"] == 1e14
    from argosy.planner.question import from_preset
    from argosy.planner.search import search

    q = from_preset("gpt2-xl", accelerators=4, sequence_length=None, batch_tokens=2**19, dtype="bf16", tokens=None)
    assert search(q, c).prediction.step_time_s.min() > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"accelerator": "H100"}, "count must be a whole number"),
        ({"accelerator": "H100", "count": 8, "nics": 3}, "unknown keys nics"),
        ({"accelerator": "H100", "count": 8, "network": "pigeon"}, "network 'pigeon' is unknown"),
        ({"accelerator": "H100", "count": 8, "nic_gbit_s": -1}, "nic_gbit_s must be a number above 0"),
        ({"accelerator": "H100", "count": 8, "price": {"amount": "cheap"}}, "price is not understood"),
        ({"count": 8, "part": {"memory_gib": 1}}, "lacks peak_tflops, memory_gb_s"),
    ],
)
def test_mistakes_name_the_key(content: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_cluster(content, "lab.toml")


def test_what_is_neither_words_nor_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither COUNTxPART nor a cluster file → write 64xH100"):
        load_cluster("eight H100")
    with pytest.raises(InputError, match="cannot be read"):
        load_cluster(str(tmp_path / "absent.toml"))
