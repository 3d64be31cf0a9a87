"""What neighbouring pipeline ranks send each other."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Links:
    """Point-to-point messages between the pipeline ranks of one column of the mesh.

    Messages to higher and to lower ranks go through different groups. Within a group each pair of ranks then sends in
    one direction only, in an order that schedules are checked for: NCCL, which completes the messages of a pair in the
    order of their calls, cannot deadlock when two ranks send to each other at once.
    """

    up: dist.ProcessGroup
    down: dist.ProcessGroup
    rank: int
    """Of this process on the pipeline axis."""

    def send(self, tensor: Tensor, to: int, tag: int) -> dist.Work:
        """Begin to send; the tensor must stay as it is until the work is done."""
        work = dist.isend(tensor, group=self.up if to > self.rank else self.down, group_dst=to, tag=tag)
        assert work is not None
        return work

    def receive(self, into: Tensor, source: int, tag: int) -> dist.Work:
        """Begin to receive. With another `tag` than the sender's, gloo waits: messages are never mixed up."""
        work = dist.irecv(into, group=self.up if source < self.rank else self.down, group_src=source, tag=tag)
        assert work is not None
        return work

    def exchange(self, tensor: Tensor, peer: int, tag: int) -> Tensor:
        """What `peer` gives for `tensor`, which is of the same shape."""
        theirs = torch.empty_like(tensor)
        works = self.send(tensor, peer, tag), self.receive(theirs, peer, tag)
        for work in works:
            work.wait()
        return theirs
