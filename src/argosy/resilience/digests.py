"""Replicas must be equal to the last bit: they start equal and apply equal updates. A digest of each one's state,
compared every some steps, finds what no loss curve shows.

Sharded state has no twin to compare with: with fsdp alone nothing is compared, and a flipped bit in a parameter is not
covered (the digests of checkpoints begin only when it is saved). Nor is a wrong result inside a computation: all
replicas then apply the same wrong gradient.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor
from torch.distributed.tensor import DTensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class CorruptedState(RuntimeError):
    """Replicas differ. `guilty_rank` is the one that differs from the majority; None when there is none."""

    fault_class = "corrupted_state"

    def __init__(self, text: str, guilty_rank: int | None, good_until: int):
        super().__init__(text)
        self.guilty_rank = guilty_rank
        self.good_until = good_until
        """The state after this many updates was the same everywhere."""


@dataclass(frozen=True)
class Disagreement:
    """A set of replicas whose digests differ."""

    ranks: tuple[int, ...]
    guilty: int | None
    """The one in the minority, if it is one and there is a majority."""


def state_digest(tensors: Iterable[Tensor]) -> int:
    """64 bits over the bytes of this rank's parts of `tensors`, in their order.

    On a GPU each part is summed there as integers, modulo 2^64: any single flipped bit changes that, and nothing but
    the sum is copied.
    """
    digest = xxhash.xxh3_64()
    for tensor in tensors:
        local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous().view(-1)
        if local.is_cuda:
            local = local.view(_INTEGERS[local.element_size()]).sum(dtype=torch.int64).cpu().view(-1)
        digest.update(local.view(torch.uint8).numpy().data)
    return digest.intdigest()


def compare(digests: Sequence[int], replicas: Sequence[int]) -> Disagreement | None:
    """The first set of ranks of one number in `replicas` (by rank) whose `digests` differ."""
    for number in sorted(set(replicas)):
        ranks = [rank for rank, own in enumerate(replicas) if own == number]
        counts = Counter(digests[rank] for rank in ranks)
        if len(counts) == 1:
            continue
        value, most = counts.most_common(1)[0]
        others = [rank for rank in ranks if digests[rank] != value]
        guilty = others[0] if len(others) == 1 and most > 1 else None
        return Disagreement(tuple(ranks), guilty)
    return None


class StateDigests:
    """Compares every `every_steps` steps and before each save, so that no checkpoint holds what replicas doubt."""

    def __init__(
        self, every_steps: int, tensors: Sequence[Tensor], replicas: Sequence[int], group: dist.ProcessGroup, step: int
    ):
        """`replicas` says by rank which ranks hold the same part of the state; `step` updates were done before."""
        self._every_steps = every_steps
        self._tensors = list(tensors)
        self._replicas = list(replicas)
        self._group = group
        self._good_until = step

    @property
    def has_twins(self) -> bool:
        return len(set(self._replicas)) < len(self._replicas)

    def check_start(self) -> None:
        """Refuse replicas that start different: nothing later would make them equal. Collective."""
        start, self._good_until = self._good_until, -1
        self.check(start)

    def after_step(self, step: int) -> None:
        """Collective, every `every_steps`; raises CorruptedState on all ranks alike. `step` updates are done."""
        if step % self._every_steps == 0:
            self.check(step)

    def check(self, step: int) -> None:
        if not self.has_twins or step == self._good_until:
            return
        mine = torch.tensor([state_digest(self._tensors) - (1 << 63)], dtype=torch.int64)
        all_of_them = [torch.empty_like(mine) for _ in self._replicas]
        dist.all_gather(all_of_them, mine, group=self._group)
        found = compare([int(one) for one in all_of_them], self._replicas)
        if found is None:
            self._good_until = step
            return
        who = f"rank {found.guilty} differs from the other" if found.guilty is not None else "nobody can be told from"
        text = f"state of replicas {list(found.ranks)} differs after step {step}: {who} replicas"
        known = f"equal until step {self._good_until}" if self._good_until >= 0 else "they have started so"
        raise CorruptedState(f"{text}; {known}", found.guilty, max(0, self._good_until))
