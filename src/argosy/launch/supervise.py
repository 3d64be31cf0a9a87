"""The supervisor of one attempt's ranks on this host: it sees that one fails, who was first, and ends the rest.

It stands outside the ranks, has no torch and no threads, and looks at each rank's page four times a second. What it
concludes is an :class:`argosy.resilience.incident.Incident`; what to do about it is a policy's to say.
"""

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.errors import Exit
from argosy.journal.clock import mono_ns
from argosy.journal.heartbeat import Beat
from argosy.launch.attempt import Attempt, stop_reason
from argosy.launch.live import LiveLine
from argosy.launch.recovery import Recovery
from argosy.launch.signals import StopSignals
from argosy.launch.stop import request_stop
from argosy.launch.workers import Ended, LogFollower, Workers
from argosy.recipe.schema import ResilienceTable
from argosy.registry.run_folder import RunFolder
from argosy.resilience.blame import ENDED_WELL, TOLD, Cause, End, consequences, first_cause
from argosy.resilience.incident import Incident, new_incident
from argosy.resilience.last_words import last_words_file, read_last_words
from argosy.resilience.memory_kills import MemoryKills
from argosy.resilience.signs import Sign, SignReader
from argosy.resilience.stacks import collect_stacks, stacks_file
from argosy.resilience.stragglers import Stragglers
from argosy.resilience.watch import Finding, Limits, WaitingFor, Watch

LOOK_S = 0.25
BLAME_WAIT_S = 2.0
"""How long a complaint about a connection waits for its cause to show."""
LINGER_S = 60.0
"""How long ranks may take to follow the first that ended well."""
_WAIT_WORTH_NOTING_S = 5.0


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended early."""

    cause: Cause
    incident: Incident
    told: Exit | None
    """The rank's own word that another start would not help."""
    step_s: float | None
    """Median of the last steps."""


class Supervisor:
    """Watches the workers of an attempt from their start to the end of the last."""

    def __init__(
        self,
        attempt: Attempt,
        workers: Workers,
        signals: StopSignals,
        live: LiveLine,
        limits: ResilienceTable,
        recovery: Recovery | None,
    ):
        self._attempt = attempt
        self._workers = workers
        self._signals = signals
        self._live = live
        self._grace_s = limits.grace_s
        self._watch = Watch(Limits.from_recipe(limits))
        self._stragglers = Stragglers()
        self._memory = MemoryKills()
        self._recovery = recovery
        run, number = attempt.run, attempt.number
        ranks = range(attempt.slots.count)
        self._reader = SignReader({rank: run.heartbeat_file(number, rank) for rank in ranks})
        self._lead = LogFollower(log_file(run, number, 0))
        self._asked = False
        self._stop_by_s = float("inf")
        self._noted: WaitingFor | None = None

    def watch(self) -> Failure | None:
        """Until all ranks have ended well (None), or one failed; then all are gone and the incident is written."""
        self._live.follow(self._attempt.run.path, self._attempt.number)
        linger_until_s = float("inf")
        with self._reader:
            while self._workers.running:
                ended = self._workers.wait(LOOK_S, self._signals.fd)
                self._heed_signals()
                if ended and (cause := self._blame()) is not None:
                    return self._fail(cause)
                signs = self._signs()
                if (finding := self._watch.look(mono_ns(), signs)) is not None:
                    return self._fail(_of(finding), finding)
                self._memory.note(self._workers.pids)
                self._note(signs)
                self._show()
                if ended:
                    linger_until_s = min(linger_until_s, time.monotonic() + LINGER_S)
                if time.monotonic() > linger_until_s:
                    return self._fail(self._not_followed())
                if time.monotonic() > self._stop_by_s:
                    self._drop()
                    return None
        codes = {end.exit_code for end in self._workers.ended}
        self._attempt.exit = Exit.DONE if codes == {Exit.DONE} else Exit.START_AGAIN
        self._attempt.reason = stop_reason(self._attempt.run, self._attempt.number)
        return None

    # -- looking -------------------------------------------------------------------------------------

    def _signs(self) -> list[Sign]:
        return [self._reader.read(rank, pid) for rank, pid in self._workers.pids.items()]

    def _note(self, signs: Sequence[Sign]) -> None:
        """What is no failure but worth a record: a recovery that is complete, a wait, a slow rank."""
        if self._recovery is not None and self._recovery.completed(mono_ns(), signs, self._attempt.slots.count):
            self._recovery = None
        waiting = self._watch.waiting
        if waiting is not None and waiting.for_s >= _WAIT_WORTH_NOTING_S:
            if self._noted is None or self._noted.rank != waiting.rank or self._noted.phase != waiting.phase:
                self._record("wait", rank=waiting.rank, phase=waiting.phase, for_s=round(waiting.for_s, 2))
            self._noted = waiting
        for slow in self._stragglers.look(signs):
            self._record("straggler", **slow.record())
            if slow.lasting:
                self._live.say(f"rank {slow.rank} is slow: {slow.text}")
                self._write(Cause("straggler", slow.rank, slow.text, "own time"), mono_ns(), None, {})

    def _show(self) -> None:
        for line in self._lead.new_lines():  # rank 0 speaks for all
            self._live.say(line)
        self._live.update()

    def _heed_signals(self) -> None:
        self._signals.drain()
        asked = self._signals.asked
        if asked is None:
            return
        if self._signals.must_end and self._stop_by_s == float("inf"):
            self._stop_by_s = time.monotonic() + self._grace_s
        if not self._asked:
            self._asked = True
            request_stop(self._attempt.run, f"{asked.name} to the launcher")
            self._live.say("stopping at the next step, saving first; a second signal changes nothing")

    # -- concluding ----------------------------------------------------------------------------------

    def _blame(self) -> Cause | None:
        """The first cause among the ends so far; a mere complaint waits a little for what is behind it."""
        cause = first_cause([self._end(end) for end in self._workers.ended])
        give_up = time.monotonic() + BLAME_WAIT_S
        while cause is not None and not cause.certain and self._workers.running and time.monotonic() < give_up:
            self._workers.wait(min(LOOK_S, max(0.0, give_up - time.monotonic())))
            cause = first_cause([self._end(end) for end in self._workers.ended])
        return cause

    def _end(self, ended: Ended) -> End:
        run, number = self._attempt.run, self._attempt.number
        return End(
            ended.rank,
            ended.exit_code,
            ended.signal,
            ended.how,
            words=read_last_words(last_words_file(run.attempt_folder(number), ended.rank)),
            memory_kill=ended.signal is not None and self._memory.killed(ended.rank),
            decided=ended.exit_code not in ENDED_WELL or stop_reason(run, number, ended.rank) is not None,
        )

    def _fail(self, cause: Cause, finding: Finding | None = None) -> Failure:
        """Collect the evidence, end all ranks, and write the incident."""
        verdict_ns = mono_ns()
        stacks = self._stacks() if finding is not None else {}
        evidence_ns = mono_ns()
        ended = [self._end(end) for end in self._workers.ended]
        self._workers.terminate(0)
        incident = self._write(cause, verdict_ns, finding, stacks, consequences(ended, cause))
        incident = incident.with_phase("evidence", (evidence_ns - verdict_ns) / 1e9)
        incident = incident.with_phase("terminate", (mono_ns() - evidence_ns) / 1e9)
        if self._recovery is not None:
            self._recovery.failed()
        told = next((end for end in ended if end.rank == cause.rank and end.exit_code in TOLD), None)
        signal = next((end.signal for end in ended if end.rank == cause.rank), None)
        self._attempt.fail(cause.text, cause.rank, signal, None if told is None else told.exit_code)
        self._show()
        code = None if told is None else Exit(told.exit_code or 0)
        return Failure(cause, incident, code, self._watch.step_s)

    def _stacks(self) -> dict[str, str]:
        folder = self._attempt.run.attempt_folder(self._attempt.number)
        pids = self._workers.pids
        found = collect_stacks({rank: stacks_file(folder, rank) for rank in pids}, pids)
        return {str(rank): text for rank, text in found.items()}

    def _write(
        self,
        cause: Cause,
        verdict_ns: int,
        finding: Finding | None,
        stacks: dict[str, str],
        others: tuple[str, ...] = (),
    ) -> Incident:
        run, number = self._attempt.run, self._attempt.number
        signs = {rank: self._reader.read(rank) for rank in range(self._attempt.slots.count)}
        # When nobody is to blame alone, the rank that went furthest says where it was.
        furthest = max(signs.values(), key=lambda sign: -1 if sign.beat is None else sign.beat.step)
        guilty = furthest if cause.rank is None else signs[cause.rank]
        beat = guilty.beat
        found = Incident(
            run=run.info.id,
            attempt=number,
            kind=cause.kind,
            rank=cause.rank,
            cause=cause.text,
            host=socket.gethostname(),
            step=None if beat is None else beat.step,
            phase=guilty.span or guilty.phase,
            detected_by=cause.detected_by,
            verdict_ns=verdict_ns,
            verdict_wall_ns=time.time_ns() - (mono_ns() - verdict_ns),
            silent_s=None if beat is None else round(max(0, verdict_ns - _alive_ns(finding, beat)) / 1e9, 4),
            consequences=others,
            ranks={str(rank): _sign_record(sign, verdict_ns) for rank, sign in signs.items()},
            stacks=stacks,
            trace=cause.trace,
        )
        incident = new_incident(run.incidents, found)
        self._attempt.journal.put(
            "incident", {"t": verdict_ns, "n": incident.number, "what": cause.kind, "rank": cause.rank}
        )
        return incident

    def _record(self, what: str, **fields: object) -> None:
        self._attempt.journal.put("verdict", {"t": mono_ns(), "what": what, **fields})

    def _not_followed(self) -> Cause:
        late = self._workers.running
        text = f"ranks {late} did not end within {LINGER_S:g} s of the first"
        return Cause("stuck", late[0], text, "progress")

    def _drop(self) -> None:
        """The grace is over: what is being saved is dropped, and older checkpoints stay."""
        self._workers.terminate(0)
        self._attempt.exit = Exit.START_AGAIN
        self._attempt.reason = f"its ranks did not save and end within the {self._grace_s:g} s of grace"
        return


def log_file(run: RunFolder, attempt: int, rank: int) -> Path:
    """Where a rank's stdout and stderr go."""
    return run.attempt_folder(attempt) / f"rank-{rank}.log"


def _of(finding: Finding) -> Cause:
    alone = finding.ranks[0] if len(finding.ranks) == 1 else None
    who = f"rank {alone}" if alone is not None else f"ranks {', '.join(map(str, finding.ranks))}"
    by = "heartbeat" if finding.kind in ("frozen", "held") else "progress"
    return Cause(finding.kind, alone, f"{who}: {finding.text}", by)


def _alive_ns(finding: Finding | None, beat: Beat) -> int:
    """The last sign of life that counts: for a rank that stood still its last progress, else whichever came last."""
    return beat.mono_ns if finding is not None and finding.kind == "stuck" else max(beat.mono_ns, beat.beat_ns)


def _sign_record(sign: Sign, now_ns: int) -> dict[str, object]:
    beat = sign.beat
    if beat is None:
        return {"state": "has not opened its journal"}
    return {
        "step": beat.step,
        "phase": sign.span or sign.phase,
        "collectives": beat.collectives,
        "beat_age_s": round((now_ns - beat.beat_ns) / 1e9, 3) if beat.beat_ns else None,
        "progress_age_s": round((now_ns - beat.mono_ns) / 1e9, 3),
        "pid": beat.pid,
    }
