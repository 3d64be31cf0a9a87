"""Where the answer is known the simulator gives it: closed forms within 0.5 %, published outcomes with assumptions."""

from dataclasses import replace

import pytest

from argosy.simulator.validate import Case, daly, published, replicas, run


@pytest.mark.parametrize("times", [(11_135.0, 10.0, 600.0), (1_825.0, 1.0, 60.0)])
def test_daly_exact(times: tuple[float, float, float]) -> None:
    case = replace(daly(*times, mtbfs=2_500), replications=8)
    verdict = run(case)
    assert verdict.useful.half < 0.0025 * case.low, "too few failures to tell"
    assert verdict.useful.mean == pytest.approx(case.expected, rel=0.005)
    assert verdict.holds


def test_daly_where_a_third_is_lost() -> None:
    case = replace(daly(1_000.0, 20.0, 200.0, mtbfs=4_000), replications=12)
    verdict = run(case, seed=5000)
    assert verdict.useful.mean == pytest.approx(case.expected, rel=0.005)


@pytest.mark.parametrize("groups", [8, 32])
def test_replica_groups(groups: int) -> None:
    case = replace(replicas(groups), replications=4)
    verdict = run(case)
    assert case.expected is not None
    lost = 1 - verdict.useful.mean
    assert lost == pytest.approx(1 - case.expected, rel=0.05)  # of what is lost, which is 0.1 % of the whole


@pytest.mark.parametrize("case", published(), ids=lambda case: case.name[:30])
def test_published(case: Case) -> None:
    verdict = run(replace(case, replications=4))
    assert verdict.holds, verdict
    assert case.assumed
