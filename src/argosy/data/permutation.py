"""A shuffle of any length without a table: position → element in O(1), forwards from any point.

A Feistel network permutes the smallest power of two that holds ``n`` numbers; results outside ``n`` are
sent through it again ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite domains", 2002),
which on average takes less than two passes because the power of two is below ``2 n``.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDS = 10
"""A short half carries few bits per round; ten rounds leave no structure that the tests can see even for n < 50."""

LARGEST = 1 << 40


class Permutation:
    """Keyed bijection of ``range(n)``, for 1 ≤ n ≤ 2^40.

    Args:
        n: number of elements.
        key: any bytes; equal keys give equal permutations, on every machine.
    """

    def __init__(self, n: int, key: bytes):
        if not 1 <= n <= LARGEST:
            raise ValueError(f"a permutation has 1 to 2^40 elements, not {n}")
        self.n = n
        bits = max(2, (n - 1).bit_length())
        self._right_bits = np.uint64(bits // 2)
        self._right_mask = np.uint64((1 << bits // 2) - 1)
        self._left_mask = np.uint64((1 << bits - bits // 2) - 1)
        stream = hashlib.shake_128(n.to_bytes(8, "little") + key).digest(8 * ROUNDS)
        self._round_keys = np.frombuffer(stream, dtype="<u8").astype(np.uint64)

    def __call__(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Elements at ``positions`` (integers in ``range(n)``, any shape); same shape, int64."""
        wanted = np.asarray(positions, dtype=np.int64)
        if wanted.size and (wanted.min() < 0 or wanted.max() >= self.n):
            raise ValueError(f"position outside range({self.n})")
        values = self._network(wanted.astype(np.uint64).reshape(-1))
        while (outside := np.flatnonzero(values >= np.uint64(self.n))).size:
            values[outside] = self._network(values[outside])
        return values.astype(np.int64).reshape(wanted.shape)

    def _network(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self._right_bits, values & self._right_mask
        for first, second in self._round_keys.reshape(-1, 2):
            left = left ^ (_scramble(right ^ first) & self._left_mask)
            right = right ^ (_scramble(left ^ second) & self._right_mask)
        return left << self._right_bits | right


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every input bit moves every output bit."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
