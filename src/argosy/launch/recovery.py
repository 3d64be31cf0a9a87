"""From a verdict to the next completed step: what it took, and what the fault cost."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from argosy.journal.clock import mono_ns
from argosy.registry.run_folder import RunFolder
from argosy.resilience.incident import Incident, write_incident
from argosy.resilience.signs import Sign

_NS_PER_HOUR = 3_600_000_000_000


class Recovery:
    """An incident whose consequences are still being mended; it is written again when they are."""

    def __init__(
        self,
        run: RunFolder,
        incident: Incident,
        rung: str,
        *,
        devices: int,
        step_s: float | None,
        price_per_hour: Fraction | None,
    ):
        self._run = run
        self._devices = devices
        self._step_s = step_s or 0.0
        self._price = price_per_hour
        self._decided_ns = self._started_ns = mono_ns()
        self.incident = replace(incident, rung=rung)
        write_incident(run.incidents, self.incident)

    def started(self) -> None:
        """The new ranks have been started."""
        self._started_ns = mono_ns()
        before_s = (self._started_ns - self.incident.verdict_ns) / 1e9 - sum(self.incident.phases.values())
        self._write(self.incident.with_phase("respawn", before_s))

    def completed(self, now_ns: int, signs: Sequence[Sign], world: int) -> bool:
        """Whether every rank has completed a step again; then the incident is closed."""
        beats = [sign.beat for sign in signs if sign.beat is not None and sign.beat.steps > 0]
        if len(beats) < world:
            return False
        # `now` is when somebody looked; the ranks wrote down how long the step itself took
        first_step_s = min((now_ns - self._started_ns) / 1e9, beats[0].step_ns / 1e9)
        incident = self.incident.with_phase("rejoin", (now_ns - self._started_ns) / 1e9 - first_step_s)
        incident = incident.with_phase("first_step", first_step_s)
        resumed_at = min(beat.step - beat.steps for beat in beats)
        lost = None if incident.step is None else max(0, incident.step - resumed_at)
        lost_s = (lost or 0) * self._step_s + sum(v for k, v in incident.phases.items() if k != "first_step")
        device_s = self._devices * lost_s
        self._write(
            replace(incident, lost_steps=lost, lost_device_s=round(device_s, 4), lost_money=self._money(device_s))
        )
        return True

    def failed(self) -> None:
        """The next fault came before a step was completed: how long it was tried is all that can be said."""
        tried_s = (mono_ns() - self._started_ns) / 1e9
        self._write(self.incident.with_phase("failed_attempt", tried_s))

    def _money(self, device_s: float) -> str | None:
        if self._price is None:
            return None
        from argosy.ledger.money import NANOS, money_text

        return money_text(round(self._price * Fraction(round(device_s * 1e9), _NS_PER_HOUR) * NANOS))

    def _write(self, incident: Incident) -> None:
        self.incident = incident
        write_incident(self._run.incidents, incident)
