"""What the engine writes its journal with: where the step path's time goes, at a microsecond per phase.

The recorder knows one thing at any moment: what the process is doing now. Entering or leaving a phase adds the time
since the last switch to what was being done before. So times are self times, nothing is counted twice, and what
happens between declared phases is in no account and remains visible as unattributed.

One thread switches phases: the one that made the recorder, or one that it waits for (autograd's device threads).
:meth:`Recorder.event` may be called from any thread.
"""

import gc
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from argosy.errors import UsageError
from argosy.journal import heartbeat as page
from argosy.journal.clock import mono_ns
from argosy.journal.collectives import CALL_BYTES, Call, pack
from argosy.journal.heartbeat import HeartbeatPage, State
from argosy.journal.line import Line, pack_line
from argosy.journal.off_cpu import OffCpu
from argosy.journal.phys import AXES, INDEX, PHYS, comm
from argosy.journal.schema import COLLS_BYTES, Header, sampled
from argosy.journal.writer import Writer

_TELEMETRY = INDEX["telemetry"]
_GC = INDEX["gc"]
_OUTSIDE = len(PHYS)  # the slot of time between declared phases; never written
_COMM = tuple(index for name, index in INDEX.items() if name.startswith("comm."))

LONGEST_LINE = 20_000
"""Stretches of a sampled step that are kept until its record is written."""

Phase = AbstractContextManager[Any, None]


class Recording(Protocol):
    """What the engine asks of a recorder; :class:`Recorder` and :class:`NullRecorder` provide it."""

    def phase(self, name: str) -> Phase: ...
    def collective(
        self, axis: str, op: str, group: str, nbytes: int, ends: tuple[int, int | None] | None = None
    ) -> Phase: ...
    def span(self, name: str) -> Phase: ...
    def span_closed(self, name: str, t0_ns: int, t1_ns: int) -> None: ...
    def end_step(
        self,
        step: int,
        *,
        loss_tokens: int,
        context_tokens: int = 0,
        pad_tokens: int = 0,
        loss: float | None = None,
        grad_norm: float | None = None,
        lr: float | None = None,
        skipped: bool = False,
    ) -> None: ...
    def event(self, kind: str, **fields: Any) -> None: ...
    def close(self) -> None: ...


class Recorder:
    """Writes one rank's journal and heartbeat.

    `clock` is for tests; it must be the monotonic clock that the header was stamped with. `off_cpu` watches the
    calling thread's processor time too: for ranks whose device is that thread.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        heartbeat: HeartbeatPage | None = None,
        *,
        clock: Callable[[], int] = mono_ns,
        off_cpu: OffCpu | None = None,
    ):
        self._clock = clock
        self._off_cpu = off_cpu
        self._header = header
        self._heartbeat = heartbeat
        self._words: Any = heartbeat.words if heartbeat else [0] * page.WORDS
        self._writer = Writer(path)
        self._owner = threading.get_ident()

        self._amounts = [0] * (_OUTSIDE + 1)
        self._current = _OUTSIDE
        self._around: list[int] = []  # what the phases around the current one are
        self._frames: list[tuple[int, list[int], int]] = []  # the same for spans, with the times interrupted
        self._window = self._mark = clock()  # begin of the step window; last switch

        self._spans = 0
        self._groups: Counter[str] = Counter()
        self._calls: list[Call] = []
        self._calls_dropped = 0
        self._line: Line = []
        self._passes: list[list[int]] = []  # [first, last] step of each stretch without a rollback
        self.next_step = 0

        self._phases = {name: _Phase(self, index) for name, index in INDEX.items()}
        self._comm = {axis: self._phases[comm(axis)] for axis in (*AXES, "control")}
        self._writer.put("header", header.fields())
        self._beat()
        gc.callbacks.append(self._on_gc)

    @property
    def next_step(self) -> int:
        """The step under way: the one after the last, or the one that a restore led to."""
        return self._next_step

    @next_step.setter
    def next_step(self, step: int) -> None:
        self._next_step = step
        self._sampling = sampled(step, self._header.seed, self._header.sample_every)
        self._words[page.STEP] = step

    # -- phases ------------------------------------------------------------------------------------

    def phase(self, name: str) -> "Phase":
        """Time spent in the `with` block, without what is nested in it, goes to `name`."""
        try:
            return self._phases[name]
        except KeyError:
            raise UsageError(f"{name!r} is no phase of a journal", do=f"use one of {', '.join(PHYS)}") from None

    def collective(
        self, axis: str, op: str, group: str, nbytes: int, ends: tuple[int, int | None] | None = None
    ) -> "Phase":
        """The wait for a collective that is issued now; on sampled steps it is also recorded by itself.

        `ends` are ranks in the group: (source, target) of a transfer between two, (root, None) of a collective that
        depends on its root.
        """
        source, target = ends or (None, None)
        counted = group if target is None else f"{group} {source} {target}"
        number = self._groups[counted]
        self._groups[counted] = number + 1
        self._words[page.COLLECTIVES] += 1
        phase = self._comm[axis]
        # An evaluation or a save makes as many collectives as hundreds of steps: they are its own, not the step's.
        if not self._sampling or self._frames:
            return phase
        call = Call(self._next_step, axis, op, group, number, nbytes, self._clock(), source=source, target=target)
        return _Collective(self, phase, call)

    @property
    def off_cpu_ns(self) -> int:
        """Time without a processor in math phases of the step under way, where that is watched."""
        return 0 if self._off_cpu is None else sum(self._off_cpu.off.values())

    @property
    def line(self) -> Line:
        """What this rank did so far in the step under way, if it is sampled: (phase, begin, end) in order [ns]."""
        return self._line

    def _switch(self, to: int) -> None:
        now = self._clock()
        # A GC pause may have run since the clock was read: its end is then the last switch, and later than `now`.
        if now > self._mark:
            self._amounts[self._current] += now - self._mark
            if self._sampling and not self._frames and len(self._line) < LONGEST_LINE:
                self._line.append((self._current, self._mark, now))
            if self._off_cpu is not None:
                self._off_cpu.switch(self._current, to, now - self._mark)
            self._mark = now
        self._current = to
        self._words[page.MONO] = now
        self._words[page.PHASE] = to if to != _OUTSIDE else page.NOWHERE
        done = self._clock()
        if done > self._mark:
            self._amounts[_TELEMETRY] += done - self._mark
            self._mark = done

    def _enter(self, index: int) -> None:
        self._around.append(self._current)
        self._switch(index)

    def _leave(self) -> None:
        self._switch(self._around.pop())

    def _on_gc(self, moment: str, info: dict[str, int]) -> None:
        # A collection that another thread triggers stops this one too, but at a point where it may be amid a switch.
        if threading.get_ident() == self._owner:
            if moment == "start":
                self._enter(_GC)
            else:
                self._leave()

    # -- records -----------------------------------------------------------------------------------

    def span(self, name: str) -> "Phase":
        """A placed interval: evaluation, a save, a start-up phase. Written when it opens, so a kill inside is seen.

        Phases inside it are reported with it and not with the step around it.
        """
        return _Span(self, self.phase(name)._index)  # type: ignore[attr-defined]

    def span_closed(self, name: str, t0_ns: int, t1_ns: int) -> None:
        """A placed interval that is over, possibly from before there was a recorder."""
        self.phase(name)  # a closed list also for these
        self._enter(_TELEMETRY)
        self._spans += 1
        self._put("span", {"id": self._spans, "p": name, "t0": t0_ns, "t1": t1_ns})
        self._leave()

    def _open_span(self, index: int) -> tuple[int, int]:
        self._switch(_TELEMETRY)
        begin, self._spans = self._mark, self._spans + 1
        self._frames.append((self._window, self._amounts, index))
        self._amounts = [0] * (_OUTSIDE + 1)
        fields: dict[str, Any] = {"id": self._spans, "p": PHYS[index], "t0": begin, "t1": None}
        if len(self._frames) > 1:
            fields["d"] = len(self._frames) - 1
        else:
            self._words[page.SPAN] = index
        self._put("span", fields)
        self._switch(index)
        return self._spans, begin

    def _close_span(self, number: int, begin: int, before: int) -> None:
        self._switch(_TELEMETRY)
        end, inside = self._mark, self._amounts
        self._window, self._amounts, index = self._frames.pop()
        if not self._frames and PHYS[index].startswith("startup."):
            # Nothing of a step happens between start-up phases: the first window begins after the last of them.
            self._window, self._amounts = end, [0] * (_OUTSIDE + 1)
            self._line = []
        elif not self._frames and self._sampling:
            self._line.append((index, begin, end))
        fields: dict[str, Any] = {"id": number, "p": PHYS[index], "t0": begin, "t1": end}
        if self._frames:
            fields["d"] = len(self._frames)
        else:
            self._words[page.SPAN] = page.NOWHERE
        inside[index] = inside[_OUTSIDE] = 0  # its own self time is what the nested ones leave of it
        if any(inside):
            fields["a"] = _trimmed(inside)
        self._put("span", fields)
        self._switch(before)

    def end_step(
        self,
        step: int,
        *,
        loss_tokens: int,
        context_tokens: int = 0,
        pad_tokens: int = 0,
        loss: float | None = None,
        grad_norm: float | None = None,
        lr: float | None = None,
        skipped: bool = False,
    ) -> None:
        """Close the step's window and write its record.

        Tokens are those of the global batch and `loss` is its mean in nats per token, the same on all ranks.
        `step` counts from 0: the update that turns the state after `step` updates into the next.
        """
        self._enter(_TELEMETRY)
        end, amounts = self._mark, self._amounts
        fields: dict[str, Any] = {"s": step, "t0": self._window, "t1": end}
        self._window, self._amounts = end, [0] * (_OUTSIDE + 1)
        self._tell_step(end - fields["t0"], sum(amounts) - sum(amounts[index] for index in _COMM))
        amounts[_OUTSIDE] = 0
        fields["a"] = _trimmed(amounts)
        fields["n"] = _trimmed([loss_tokens, context_tokens, pad_tokens])
        # 9 digits give a float32 back exactly and keep the record small
        fields["l"] = None if loss is None else float(f"{loss:.9g}")
        fields["g"] = None if grad_norm is None else float(f"{grad_norm:.6g}")
        fields["r"] = None if lr is None else float(f"{lr:.6g}")
        if visit := self._count_visit(step):
            fields["v"] = visit
        if skipped:
            fields["x"] = 1
        if self._off_cpu is not None and any(off := self._off_cpu.take()):
            fields["u"] = off
        self._put("step", fields, droppable=True)
        if self._sampling:
            self._write_sample(step)
        self.next_step = step + 1
        self._words[page.STATE] = State.STEPPING
        self._leave()

    def event(self, kind: str, **fields: Any) -> None:
        """Write a record of any other kind, stamped now. A `restore` makes its step the next one."""
        if threading.get_ident() != self._owner:
            self._writer.put(kind, {"t": self._clock(), **fields})
            return
        self._enter(_TELEMETRY)
        self._put(kind, {"t": self._mark, **fields})
        if kind == "restore":
            self.next_step = fields["to"]
        self._leave()

    def close(self) -> None:
        """Write that the journal ends here in order. A closed recorder may be closed again."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
            self._switch(_OUTSIDE)
            self._words[page.STATE] = State.CLOSED
            self._put("close", {"t": self._mark})
            self._beat()
            self._writer.close()
            if self._off_cpu is not None:
                self._off_cpu.close()
            if self._heartbeat:
                self._heartbeat.close()
            self._words = [0] * page.WORDS

    def _put(self, kind: str, fields: dict[str, Any], *, droppable: bool = False) -> None:
        self._writer.put(kind, fields, droppable=droppable)
        self._words[page.SEQ] = self._writer.last_seq

    def _tell_step(self, whole_ns: int, own_ns: int) -> None:
        """Tell the heartbeat page what a step took, and what of it was not spent on other ranks."""
        done = self._words[page.STEPS]
        self._words[page.OWN + done % page.OWN_STEPS] = own_ns
        self._words[page.STEP_NS] = whole_ns
        self._words[page.STEPS] = done + 1

    def _write_sample(self, step: int) -> None:
        """What a sampled step has besides its record: the order of its phases, and its collectives."""
        if self._line:
            self._put("line", pack_line(step, self._line), droppable=True)
        if self._calls:
            self._put("colls", pack(step, self._calls), droppable=True)
        if self._calls_dropped:
            self._put("drop", {"n": self._calls_dropped, "why": "sampled step too large"})
        self._line, self._calls, self._calls_dropped = [], [], 0

    def _keep_call(self, call: Call) -> None:
        if (len(self._calls) + 1) * CALL_BYTES > COLLS_BYTES:
            self._calls_dropped += 1
        else:
            self._calls.append(call)

    def _count_visit(self, step: int) -> int:
        """How often this attempt has executed `step` before."""
        visit = sum(first <= step <= last for first, last in self._passes)
        if self._passes and self._passes[-1][1] == step - 1:
            self._passes[-1][1] = step
        else:
            self._passes.append([step, step])
        return visit

    def _beat(self) -> None:
        self._words[page.MONO] = self._mark
        self._words[page.SEQ] = self._writer.last_seq


class _Phase:
    """Reusable and re-entrant: all its state is in the recorder."""

    __slots__ = ("_index", "_recorder")

    def __init__(self, recorder: Recorder, index: int):
        self._recorder = recorder
        self._index = index

    def __enter__(self) -> None:
        self._recorder._enter(self._index)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._recorder._leave()


class _Collective:
    __slots__ = ("_call", "_phase", "_recorder")

    def __init__(self, recorder: Recorder, phase: _Phase, call: Call):
        self._recorder = recorder
        self._phase = phase
        self._call = call

    def __enter__(self) -> None:
        self._phase.__enter__()
        self._call.waited_ns = self._recorder._mark

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._phase.__exit__(kind, error, at)
        self._call.done_ns = self._recorder._mark
        self._recorder._keep_call(self._call)


class _Span:
    __slots__ = ("_before", "_index", "_opened", "_recorder")

    def __init__(self, recorder: Recorder, index: int):
        self._recorder = recorder
        self._index = index

    def __enter__(self) -> None:
        self._before = self._recorder._current
        self._opened = self._recorder._open_span(self._index)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._recorder._close_span(*self._opened, self._before)


class NullRecorder:
    """Records nothing: for library use without a journal."""

    def phase(self, name: str) -> Phase:
        return nullcontext()

    def collective(
        self, axis: str, op: str, group: str, nbytes: int, ends: tuple[int, int | None] | None = None
    ) -> Phase:
        return nullcontext()

    def span(self, name: str) -> Phase:
        return nullcontext()

    def span_closed(self, name: str, t0_ns: int, t1_ns: int) -> None: ...

    def end_step(self, step: int, **fields: Any) -> None: ...

    def event(self, kind: str, **fields: Any) -> None: ...

    def close(self) -> None: ...


NULL = NullRecorder()


def _trimmed(numbers: list[int]) -> list[int]:
    last = len(numbers)
    while last and not numbers[last - 1]:
        last -= 1
    return numbers[:last]
