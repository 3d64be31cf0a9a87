"""Executes a pipeline schedule: this rank's list of actions from :mod:`argosy.layout`, on real stages."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from argosy.data.batch import Batch
from argosy.layout.action import Action, Kind
from argosy.layout.schedule import Schedule
from argosy.models.decoder import Decoder
from argosy.models.loss import LossSums
from argosy.parallel.links import Links
from argosy.parallel.shard import keep_gradients_whole, sum_gradients
from argosy.parallel.stage import Stage

Timed = Callable[[str], AbstractContextManager]
"""Books a named phase (forward, backward, optimizer, …)."""
LastPart = Callable[[Decoder, Tensor], LossSums | Tensor]
"""What is made of the last part of a model and its input."""


class Pipeline:
    """The stages of one rank, and the messages between them and those of other ranks."""

    def __init__(self, schedule: Schedule, models: Mapping[int, Decoder], links: Links):
        self._schedule = schedule
        self._owner = schedule.stage_rank()
        self._stages = {number: Stage(number, model) for number, model in models.items()}
        self._links = links
        self.most_in_flight = 0
        """Largest number of stage activations held at once in the last step."""

    def run(self, batches: Sequence[Batch], *, divisor: int, z_loss: float, timed: Timed) -> Tensor | None:
        """Forward and backward of all micro-batches; gradients stay with the stages, summed over micro-batches.

        Returns the sum of losses in nats on the rank with the last stage, None on others.
        """
        for stage in self._stages.values():
            if isinstance(stage.model, FSDPModule):
                keep_gradients_whole(stage.model)
        step = _Step(self._schedule, self._owner, self._stages, self._links, batches, divisor, z_loss, timed)
        for action in self._schedule.ranks[self._links.rank]:
            step.do(action)
        step.finish()
        self.most_in_flight = step.most_in_flight
        return step.loss_sum

    def forward(self, batch: Batch, last: LastPart) -> LossSums | Tensor | None:
        """One pass without gradients, whose end is what `last` makes of the last stage's model and its input.

        None on ranks that do not have that stage.
        """
        result: LossSums | Tensor | None = None
        handed_over: Tensor | None = None
        sends = []
        for number in range(self._schedule.stages):
            stage = self._stages.get(number)
            if stage is None:
                continue
            if number == 0:
                x = batch.tokens
            elif (source := self._owner[number - 1]) == self._links.rank:
                assert handed_over is not None
                x = handed_over
            else:
                x = _empty_entry(stage.model, batch)
                self._links.receive(x, source, number).wait()
            if number == self._schedule.stages - 1:
                result = last(stage.model, x)
                continue
            handed_over = stage.model(x)
            if self._owner[number + 1] != self._links.rank:
                sends.append((self._links.send(handed_over, self._owner[number + 1], number + 1), handed_over))
        for work, _ in sends:
            work.wait()
        return result

    @property
    def last_stage(self) -> int:
        return self._schedule.stages - 1

    def rank_of(self, stage: int) -> int:
        """Pipeline rank of a stage."""
        return self._owner[stage]

    @property
    def links(self) -> Links:
        return self._links


class _Step:
    """The state of one step: what has arrived, what is on its way."""

    def __init__(
        self,
        schedule: Schedule,
        owner: Mapping[int, int],
        stages: Mapping[int, Stage],
        links: Links,
        batches: Sequence[Batch],
        divisor: int,
        z_loss: float,
        timed: Timed,
    ):
        self.last_stage = schedule.stages - 1
        self.owner = owner
        self.stages = stages
        self.links = links
        self.batches = batches
        self.divisor = divisor
        self.z_loss = z_loss
        self.timed = timed
        self.arriving: dict[Action, tuple[Tensor, dist.Work | None]] = {}
        """Messages by the action that receives them; without work those from a stage of this very rank."""
        self.ready: dict[Action, Tensor] = {}
        """Results to be sent, by the action that sends them."""
        self.sent: list[tuple[dist.Work, Tensor]] = []
        self.loss_sum: Tensor | None = None
        self.most_in_flight = 0

    def do(self, action: Action) -> None:
        match action.kind:
            case Kind.F:
                self.forward(action.stage, action.micro_batch)
            case Kind.B | Kind.I | Kind.W:
                self.backward(action)
            case Kind.RECV_F | Kind.RECV_B:
                self.receive(action)
            case Kind.SEND_F | Kind.SEND_B:
                self.send(action)
            case Kind.REDUCE:
                model = self.stages[action.stage].model
                if isinstance(model, FSDPModule):
                    sum_gradients(model)
            # FSDP2 gathers before the first use and, told so, frees after REDUCE: nothing is left to do
            case Kind.UNSHARD | Kind.RESHARD:
                pass

    def finish(self) -> None:
        """Wait until everything that was sent has left."""
        for work, _ in self.sent:
            work.wait()

    # -- computation -------------------------------------------------------------------------------

    def forward(self, number: int, micro: int | None) -> None:
        assert micro is not None
        stage, batch = self.stages[number], self.batches[micro]
        entry = batch.tokens
        if number > 0:
            entry = self.take(Action(number, Kind.RECV_F, micro)).requires_grad_()
        with self.timed("forward"):
            if number < self.last_stage:
                result = stage.model(entry, documents=batch.documents)
                self.hand_on(Action(number, Kind.SEND_F, micro), result.detach())
            else:
                sums = stage.model(entry, batch.targets, z_loss=self.z_loss, documents=batch.documents)
                loss_sum = sums.loss_sum.detach()
                self.loss_sum = loss_sum if self.loss_sum is None else self.loss_sum + loss_sum
                result = sums.objective / self.divisor
            stage.keep(micro, entry, result)
        self.most_in_flight = max(self.most_in_flight, sum(s.in_flight for s in self.stages.values()))

    def backward(self, action: Action) -> None:
        number, kind, micro = action.stage, action.kind, action.micro_batch
        assert micro is not None
        stage = self.stages[number]
        if kind is Kind.W:
            with self.timed("backward"):
                stage.backward_to_weights(micro)
            return
        gradient = None if number == self.last_stage else self.take(Action(number, Kind.RECV_B, micro))
        with self.timed("backward"):
            back = (stage.backward if kind is Kind.B else stage.backward_to_entry)(micro, gradient)
        if back is not None:
            self.hand_on(Action(number, Kind.SEND_B, micro), back)

    # -- messages ----------------------------------------------------------------------------------

    def hand_on(self, send: Action, tensor: Tensor) -> None:
        """Keep what `send` will send; between stages of this rank there is no such action, and it has arrived."""
        target = receiver(send)
        if self.owner[target.stage] == self.links.rank:
            self.arriving[target] = (tensor, None)
        else:
            self.ready[send] = tensor

    def send(self, action: Action) -> None:
        tensor = self.ready.pop(action).contiguous()
        target = receiver(action)
        self.sent.append((self.links.send(tensor, self.owner[target.stage], self.tag(target)), tensor))

    def receive(self, action: Action) -> None:
        assert action.micro_batch is not None
        source = action.stage + (-1 if action.kind is Kind.RECV_F else 1)
        into = _empty_entry(self.stages[action.stage].model, self.batches[action.micro_batch])
        self.arriving[action] = into, self.links.receive(into, self.owner[source], self.tag(action))

    def take(self, action: Action) -> Tensor:
        """What `action` received, once it is here."""
        tensor, work = self.arriving.pop(action)
        if work is not None:
            work.wait()
        return tensor

    def tag(self, receive: Action) -> int:
        """A number of its own for each message of a step."""
        assert receive.micro_batch is not None
        message = 2 * receive.stage + (receive.kind is Kind.RECV_B)
        return message * len(self.batches) + receive.micro_batch


def receiver(send: Action) -> Action:
    """The other end of a SEND_F or SEND_B."""
    forward = send.kind is Kind.SEND_F
    kind = Kind.RECV_F if forward else Kind.RECV_B
    return Action(send.stage + (1 if forward else -1), kind, send.micro_batch)


def _empty_entry(model: Decoder, batch: Batch) -> Tensor:
    """Room for hidden states [B, S / n, hidden] of a micro-batch; those that enter and leave a stage are alike."""
    sequences, length = batch.tokens.shape
    shape = sequences, length // model.sequence_share[1], model.config.hidden_size
    return torch.empty(shape, dtype=model.dtype, device=batch.tokens.device)
