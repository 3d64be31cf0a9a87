"""The training loop: paces data, compute, evaluation and saving, and knows no details of them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from argosy.data.batch import Batch
from argosy.data.loader import Loader
from argosy.data.position import Position, Ranges
from argosy.data.prefetch import Prefetch
from argosy.data.served import EVERY_STEPS, Served
from argosy.data.tokenizer import Tokenizer
from argosy.data.windows import EvaluationWindows
from argosy.errors import Exit
from argosy.journal.recorder import Recording
from argosy.optim.schedule import learning_rate
from argosy.parallel.control import sum_over_ranks
from argosy.parallel.program import Program
from argosy.policy.action import Stop
from argosy.policy.event import Evaluated, NonFiniteUpdate
from argosy.policy.objective import ObjectivePolicy
from argosy.policy.recovery import RecoveryPolicy
from argosy.recipe.schema import Recipe
from argosy.training.evaluate import Evaluation, evaluate
from argosy.training.phases import Phases
from argosy.training.sample import Speaker
from argosy.training.saving import Saving
from argosy.training.state import LoopState
from argosy.training.steering import Agreement, Pace, Steering, Wish, agree
from argosy.training.step import train_step

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ranks:
    """This rank's place."""

    rank: int
    data_rank: int
    data_ranks: int
    group: dist.ProcessGroup | None
    """Control group of all ranks; None for a single one."""
    device: torch.device

    def total(self, values: list[float]) -> list[float]:
        return sum_over_ranks(values, self.group)


@dataclass
class Trainer:
    """Everything that a run of the loop needs, already built and loaded."""

    recipe: Recipe
    ranks: Ranks
    program: Program
    optimizer: Optimizer
    loader: Loader
    windows: EvaluationWindows
    """Held-out text of the evaluations in between."""
    final_windows: EvaluationWindows
    """Held-out text of the evaluation at the end."""
    tokenizer: Tokenizer
    state: LoopState
    saving: Saving
    steering: Steering
    pace: Pace
    recorder: Recording
    phases: Phases
    say: Say

    def run(self) -> Stop:
        """Train until a limit, a rule or a wish ends it. Saves before it returns; raises SaveError if it cannot."""
        with self.prefetch:
            end = self._train()
        self._tell_served()
        self.recorder.event("decision", what="stop", reason=end.reason, exit=int(end.exit_code))
        self.saving.finish(self.state)
        if end.exit_code == Exit.DONE:
            found = self._evaluate(self.final_windows)
            if found is None:
                # All is trained and saved; the next start makes the last evaluation.
                end = Stop(Exit.START_AGAIN, "asked to end in the last evaluation")
                self.recorder.event("decision", what="stop", reason=end.reason, exit=int(end.exit_code))
                return end
            self._record(found)
            self._write_sample()
        return end

    # -- steps ---------------------------------------------------------------------------------------

    def _train(self) -> Stop:
        if self.state.evaluation_due and (stop := self._look_at_objective()):
            return stop
        while self.state.step < self.recipe.total_steps:
            step = self.state.step
            begin_s = time.monotonic()
            with self.phases("data_wait", step):
                batches, after = self.prefetch.get(self.position)
            self.phases.batch(step, batches)
            saving = self.saving
            wish = self.steering.wish(step, saving.tried_step, self._closing_s(), saving.snapshot_step)
            counts = _counts(batches) if self.program.reports else (0, 0, 0)  # of each sequence once
            agreed = agree(wish, counts, self.ranks.total, saving.report)
            if agreed.stop:
                return self._common_stop(wish)
            if agreed.save or step % EVERY_STEPS == 0:
                self._tell_served()
            save_s = saving.go_on(self.state, agreed.saved, save=agreed.save, snapshot=agreed.snapshot)
            stop = self._step(step, batches, agreed)
            self.state.position = after
            self.served.add(step, batches)
            if stop:
                return stop
            self.pace.step(time.monotonic() - begin_s - save_s, saving=saving.saving_step is not None)
            every, done = self.recipe.eval.every_steps, self.state.step
            if every and done % every == 0 and done < self.recipe.total_steps and (stop := self._look_at_objective()):
                return stop
        return Stop(Exit.DONE, f"objective.tokens: {self.state.step * self.recipe.batch.tokens} tokens trained")

    def _step(self, step: int, batches: Sequence[Batch], agreed: Agreement) -> Stop | None:
        recipe, state = self.recipe, self.state
        # The rate of a step is that at its middle: neither the first step nor the last is then wasted on 0.
        seen = (step + 0.5) * recipe.batch.tokens
        divisor = max(1, agreed.loss_tokens)  # fine-tuning: a batch can hold prompts alone, and then teaches nothing
        rate = learning_rate(recipe.schedule, recipe.optimizer.learning_rate, seen, recipe.objective.tokens)
        result = train_step(
            self.program,
            self.optimizer,
            batches,
            step=step,
            global_loss_tokens=divisor,
            learning_rate=rate,
            clip_norm=recipe.optimizer.clip_norm,
            z_loss=recipe.objective.z_loss,
            device=self.ranks.device,
            phases=self.phases,
            total=self.ranks.total,
        )
        loss = result.loss_sum / divisor
        state.step += 1
        if result.applied:
            state.loss_tokens += agreed.loss_tokens
            state.skipped_in_row = 0
        else:
            state.skipped += 1
            state.skipped_in_row += 1
        self.recorder.end_step(
            step,
            loss_tokens=agreed.loss_tokens,
            context_tokens=agreed.context_tokens,
            pad_tokens=agreed.pad_tokens,
            loss=loss,
            grad_norm=result.grad_norm,
            lr=rate,
            skipped=not result.applied,
        )
        self.phases.step_end(step, loss)
        if result.applied:
            return None
        action = RecoveryPolicy.from_recipe(recipe.resilience).decide(
            self.steering.view(state.step, self.saving.committed_step), NonFiniteUpdate(state.skipped_in_row)
        )
        return action if isinstance(action, Stop) else None

    def __post_init__(self) -> None:
        pin = self.ranks.device.type == "cuda"
        self.prefetch = Prefetch(self._read, self.recipe.batch_sequences, self.recipe.data.prefetch, pin=pin)
        self.served = Served(self.loader.order.names, (self.ranks.data_rank, self.ranks.data_ranks))
        self.recorder.event("order", s=self.state.step, b=self.recipe.batch_sequences, **self.position.to_dict())

    @property
    def position(self) -> Position:
        assert self.state.position is not None
        return self.state.position

    def _read(self, window: Ranges) -> list[Batch]:
        """The micro-batches of this rank at a step's global indices."""
        size, share = self._micro_sequences, self._share
        return [
            self.loader.batch(
                window, self.ranks.data_rank, self.ranks.data_ranks, slice(start, min(start + size, share))
            )
            for start in range(0, share, size)
        ]

    def _tell_served(self) -> None:
        """What this rank trained on since the last time."""
        for record in self.served.records():
            if self.program.reports:  # of each sequence once
                self.recorder.event("data", **record)

    @property
    def _share(self) -> int:
        """Sequences of the global batch that this rank trains on."""
        return self.recipe.batch_sequences // self.ranks.data_ranks

    @property
    def _micro_sequences(self) -> int:
        return self.recipe.layout.micro_batch_sequences or self._share

    def _common_stop(self, wish: Wish) -> Stop:
        """One reason for all ranks: that of the first rank that wants to stop."""
        if self.ranks.group is None:
            assert wish.stop is not None
            return wish.stop
        stops: list[Stop | None] = [None] * dist.get_world_size(self.ranks.group)
        dist.all_gather_object(stops, wish.stop, group=self.ranks.group)
        return next(stop for stop in stops if stop is not None)

    # -- evaluation ----------------------------------------------------------------------------------

    def _look_at_objective(self) -> Stop | None:
        found = self._evaluate(self.windows)
        self.state.evaluation_due = found is None
        if found is None:
            return None  # the next step's wish ends the attempt
        self._record(found)
        self.state.eval_losses.append(found.loss)
        action = ObjectivePolicy.from_recipe(self.recipe.objective).decide(
            self.steering.view(self.state.step, self.saving.committed_step), Evaluated(tuple(self.state.eval_losses))
        )
        return action if isinstance(action, Stop) else None

    def _evaluate(self, windows: EvaluationWindows) -> Evaluation | None:
        begin_s = time.monotonic()
        with self.phases.window("eval", self.state.step):
            found = evaluate(
                self.program,
                windows,
                batch_sequences=self._micro_sequences,
                data_rank=self.ranks.data_rank,
                data_ranks=self.ranks.data_ranks,
                group=self.ranks.group,
                device=self.ranks.device,
                must_end=self.steering.must_end,
            )
        if found is None:
            return None
        self.pace.eval_s_per_window = (time.monotonic() - begin_s) / len(windows)
        return found

    def _write_sample(self) -> None:
        """Let the model continue the recipe's prompt, for the report."""
        ask = self.recipe.eval
        if ask.sample_prompt is None:
            return
        context = self.recipe.data.sequence_length
        with self.phases.window("eval", self.state.step):
            text = Speaker(self.program.next_logits, self.tokenizer, self.state.step, context).continue_text(
                ask.sample_prompt, ask.sample_tokens, temperature=0.8, top_k=50, seed=self.recipe.run.seed, in_step=True
            )
        if self.ranks.rank == 0:
            self.recorder.event("sample", s=self.state.step, prompt=ask.sample_prompt, text=text)

    def _closing_s(self) -> float:
        """Expected time of what comes after the last save: evaluation and sample, in windows of an evaluation.

        As the last evaluation went, else as steps go, which do more work for a sequence.
        """
        per_window_s = self.pace.eval_s_per_window or (self.pace.step_s or 0.0) / self.recipe.batch_sequences
        ask = self.recipe.eval
        # Windows of an evaluation are spread over ranks, those of a sample are not.
        sample = 0 if ask.sample_prompt is None else ask.sample_tokens * self.ranks.data_ranks
        return per_window_s * (len(self.final_windows) + sample)

    def _record(self, found: Evaluation) -> None:
        self.recorder.event(
            "eval",
            s=self.state.step,
            loss=found.loss,
            bpb=found.bits_per_byte,
            tokens=found.tokens,
            bytes=found.text_bytes,
            full=found.full,
        )


def _counts(batches: Sequence[Batch]) -> tuple[int, int, int]:
    return (
        sum(batch.loss_tokens for batch in batches),
        sum(batch.context_tokens for batch in batches),
        sum(batch.pad_tokens for batch in batches),
    )
