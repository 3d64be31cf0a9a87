"""Does a model fit on a cluster: the verdict, its terms, and what would change it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from argosy.errors import UsageError
from argosy.hardware.cluster import Cluster
from argosy.hardware.parts import GIB
from argosy.layout.layout import Layout
from argosy.planner.explain import Term, terms, why_not
from argosy.planner.memory import memory, reserved_bytes
from argosy.planner.predict import TIGHT_SHARE
from argosy.planner.question import Question
from argosy.planner.space import build_space


@dataclass(frozen=True)
class FitVerdict:
    """The layout that needs least memory, and whether that is little enough."""

    verdict: str
    """fits | tight | does not fit"""
    layout: Layout
    need_bytes: float
    """With what the allocator's peak does not show."""
    room_bytes: float
    terms: list[Term]
    layouts_that_fit: int
    reason: str | None
    do: str | None

    @property
    def fits(self) -> bool:
        return self.layouts_that_fit > 0

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "verdict": self.verdict,
            "layout": asdict(self.layout),
            "need_gib": self.need_bytes / GIB,
            "room_gib": self.room_bytes / GIB,
            "memory": [asdict(term) for term in self.terms],
            "layouts_that_fit": self.layouts_that_fit,
            "reason": self.reason,
            "do": self.do,
        }


def check_fit(question: Question, cluster: Cluster) -> FitVerdict:
    """Whether any layout fits, and the one that needs least."""
    space = build_space(question, cluster, prune=False)
    m = memory(space.workload)
    need = reserved_bytes(m.allocated)
    room = space.workload.memory_bytes
    i = int(np.argmin(need))
    fitting = int((need <= room).sum())
    reason, do = (None, None)
    if not fitting:
        try:
            reason, do = why_not(question, cluster)
        except UsageError as error:
            reason, do = error.what, error.do
    share = need[i] / room[i]
    verdict = "does not fit" if share > 1 else "tight" if share > TIGHT_SHARE else "fits"
    return FitVerdict(verdict, space.layout(i), float(need[i]), float(room[i]), terms(m, i), fitting, reason, do)
