"""How sure n of m makes one."""

import math


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """The score interval for a share (Wilson 1927), by default at 95 %: (low, high); (0, 1) without a trial.

    Unlike the plain interval it says something at 0 and at m: 0 of 300 misses still allows 1.3 %.
    """
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)
