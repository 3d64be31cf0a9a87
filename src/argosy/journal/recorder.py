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

import orjson

from argosy.errors import UsageError
from argosy.journal import heartbeat as page
from argosy.journal.clock import mono_ns
from argosy.journal.heartbeat import HeartbeatPage, State
from argosy.journal.phys import AXES, INDEX, PHYS, comm
from argosy.journal.schema import SAMPLED_STEP_BYTES, STEP_BYTES, Header, sampled
from argosy.journal.writer import Record, Writer

_TELEMETRY = INDEX["telemetry"]
_GC = INDEX["gc"]
_OUTSIDE = len(PHYS)  # the slot of time between declared phases; never written

Phase = AbstractContextManager[Any, None]


class Recording(Protocol):
    """What the engine asks of a recorder; :class:`Recorder` and :class:`NullRecorder` provide it."""

    def phase(self, name: str) -> Phase: ...
    def collective(self, axis: str, op: str, group: str, nbytes: int) -> Phase: ...
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

    `clock` is for tests; it must be the monotonic clock that the header was stamped with.
    """

    def __init__(
        self,
        path: Path,
        header: Header,
        heartbeat: HeartbeatPage | None = None,
        *,
        clock: Callable[[], int] = mono_ns,
    ):
        self._clock = clock
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
        self._colls: list[Record] = []
        self._coll_bytes = 0
        self._coll_dropped = 0
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

    def collective(self, axis: str, op: str, group: str, nbytes: int) -> "Phase":
        """The wait for a collective that is issued now; on sampled steps it is also recorded by itself."""
        number = self._groups[group]
        self._groups[group] = number + 1
        phase = self._comm[axis]
        # An evaluation or a save makes as many collectives as hundreds of steps: they are its own, not the step's.
        if not self._sampling or self._frames:
            return phase
        fields = {"s": self._next_step, "ax": axis, "op": op, "g": group, "n": number, "b": nbytes, "t0": self._clock()}
        return _Collective(self, phase, fields)

    def _switch(self, to: int) -> None:
        now = self._clock()
        # A GC pause may have run since the clock was read: its end is then the last switch, and later than `now`.
        if now > self._mark:
            self._amounts[self._current] += now - self._mark
            self._mark = now
        self._current = to
        self._words[page.MONO] = now
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
        fields: dict[str, Any] = {"id": number, "p": PHYS[index], "t0": begin, "t1": end}
        if self._frames:
            fields["d"] = len(self._frames)
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
        self._put("step", fields, droppable=True)
        if self._colls:
            self._write_colls()
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
            if self._heartbeat:
                self._heartbeat.close()
            self._words = [0] * page.WORDS

    def _put(self, kind: str, fields: dict[str, Any], *, droppable: bool = False) -> None:
        self._writer.put(kind, fields, droppable=droppable)
        self._words[page.SEQ] = self._writer.last_seq

    def _write_colls(self) -> None:
        self._writer.put_all(self._colls, droppable=True)
        if self._coll_dropped:
            self._writer.put("drop", {"n": self._coll_dropped, "why": "sampled step too large"})
        self._words[page.SEQ] = self._writer.last_seq
        self._colls, self._coll_bytes, self._coll_dropped = [], 0, 0

    def _keep_coll(self, fields: dict[str, Any]) -> None:
        size = len(orjson.dumps(fields)) + 32  # kind, number and line end
        if self._coll_bytes + size > SAMPLED_STEP_BYTES - 2 * STEP_BYTES:
            self._coll_dropped += 1
            return
        self._coll_bytes += size
        self._colls.append(("coll", fields))

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
    __slots__ = ("_fields", "_phase", "_recorder")

    def __init__(self, recorder: Recorder, phase: _Phase, fields: dict[str, Any]):
        self._recorder = recorder
        self._phase = phase
        self._fields = fields

    def __enter__(self) -> None:
        self._phase.__enter__()
        self._fields["x"] = self._recorder._mark

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._phase.__exit__(kind, error, at)
        self._fields["t1"] = self._recorder._mark
        self._recorder._keep_coll(self._fields)


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

    def collective(self, axis: str, op: str, group: str, nbytes: int) -> Phase:
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
