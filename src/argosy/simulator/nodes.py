"""Which machine sits in which place of the job, which wait, and which are slow, wrong or being repaired."""

from collections import deque
from dataclasses import dataclass, field


@dataclass
class Nodes:
    """Machines by number. The job's places are numbered too; it always uses the first `active` of them."""

    places: int
    spares: int
    active: int = 0
    at: list[int] = field(default_factory=list)
    """Machine at each active place."""
    idle: deque[int] = field(default_factory=deque)
    """Healthy machines that wait."""
    born_s: dict[int, float] = field(default_factory=dict)
    """When a machine was replaced or repaired."""
    slow: dict[int, float] = field(default_factory=dict)
    """Machine → share by which it makes steps longer."""
    wrong_since: dict[int, int] = field(default_factory=dict)
    """Machine → step from which on it corrupts the state."""

    def __post_init__(self) -> None:
        self.active = self.places
        self.at = list(range(self.places))
        self.idle = deque(range(self.places, self.places + self.spares))
        self._place = dict(enumerate(range(self.places)))
        self.empty: set[int] = set()
        """Places of the job without a machine."""

    @property
    def pool(self) -> int:
        """All machines."""
        return self.places + self.spares

    def place_of(self, machine: int) -> int | None:
        """Where it works; None if it does not."""
        return self._place.get(machine)

    @property
    def slowdown(self) -> float:
        """All wait for the slowest."""
        return max(self.slow.values(), default=0.0)

    def take_out(self, places: list[int]) -> list[int]:
        """Machines of these places leave the job; the places are empty (-1) until filled or closed."""
        machines = []
        for place in places:
            machine = self.at[place]
            if machine < 0:
                continue
            machines.append(machine)
            self.at[place] = -1
            self.empty.add(place)
            del self._place[machine]
            self.slow.pop(machine, None)
            self.wrong_since.pop(machine, None)
        return machines

    def fill(self) -> bool:
        """Waiting machines take empty places, the lowest first; whether all are filled."""
        for place in sorted(self.empty):
            if not self.idle:
                return False
            self._seat(self.idle.popleft(), place)
        return True

    def resize(self, active: int) -> None:
        """The job goes on with `active` places. Machines keep close together; those left over wait."""
        machines = [machine for machine in self.at if machine >= 0] + list(self.idle)
        assert len(machines) >= active
        self.at, self.idle = machines[:active], deque(machines[active:])
        self._place = {machine: place for place, machine in enumerate(self.at)}
        for machine in self.idle:
            self.slow.pop(machine, None)
            self.wrong_since.pop(machine, None)
        self.active = active
        self.empty.clear()

    def _seat(self, machine: int, place: int) -> None:
        self.at[place] = machine
        self._place[machine] = place
        self.empty.discard(place)
