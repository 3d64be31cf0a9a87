"""Shuffles of any length without a table: position → element in O(1), forwards from any point.

A Feistel network permutes the smallest power of two that holds ``n`` numbers; results outside ``n`` are
sent through it again ("cycle walking", Black and Rogaway, "Ciphers with arbitrary finite domains", 2002),
which on average takes less than two passes because the power of two is below ``2 n``.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

ROUNDS = 10
"""A short half carries few bits per round; ten rounds leave no structure that the tests can see even for n < 50."""

LARGEST = 1 << 40

Words = NDArray[np.uint64]


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
        self.right_bits = bits // 2
        self.left_bits = bits - bits // 2
        stream = hashlib.shake_128(n.to_bytes(8, "little") + key).digest(8 * ROUNDS)
        self.round_keys = np.frombuffer(stream, dtype="<u8").astype(np.uint64)

    def __call__(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Elements at ``positions`` (integers in ``range(n)``, any shape); same shape, int64."""
        wanted = np.asarray(positions, dtype=np.int64)
        return permute([self], np.zeros(wanted.size, dtype=np.int64), wanted.reshape(-1)).reshape(wanted.shape)


def permute(
    permutations: Sequence[Permutation], which: NDArray[np.int64], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Element ``i`` of the result is ``permutations[which[i]](positions[i])``; all of them in one pass. [m], [m] → [m].

    A mixture draws few samples from each of many sources: one numpy call for each would cost more than the samples.
    """
    lengths = np.array([one.n for one in permutations], dtype=np.int64)
    alone = len(permutations) == 1  # then everything but the values is a scalar
    sizes = lengths if alone else lengths[which]
    if positions.size and (positions.min() < 0 or (positions >= sizes).any()):
        raise ValueError(f"position outside the range of a permutation ({int(lengths.min())} elements or more)")
    right = np.array([one.right_bits for one in permutations], dtype=np.uint64)
    left = np.array([one.left_bits for one in permutations], dtype=np.uint64)
    keys = np.stack([one.round_keys for one in permutations], axis=1)  # [rounds, permutations]
    if not alone:
        right, left, keys = right[which], left[which], keys[:, which]
    limit = sizes.astype(np.uint64)
    values = _network(positions.astype(np.uint64), left, right, keys)
    while (outside := np.flatnonzero(values >= limit)).size:
        chosen = slice(None) if alone else outside
        values[outside] = _network(values[outside], left[chosen], right[chosen], keys[:, chosen])
    return values.astype(np.int64)


def _network(values: Words, left_bits: Words, right_bits: Words, keys: Words) -> Words:
    """Bits and keys: one for each value, or a single one for all."""
    one = np.uint64(1)
    right_mask, left_mask = (one << right_bits) - one, (one << left_bits) - one
    left, right = values >> right_bits, values & right_mask
    for first, second in zip(keys[::2], keys[1::2], strict=True):
        left = left ^ (_scramble(right ^ first) & left_mask)
        right = right ^ (_scramble(left ^ second) & right_mask)
    return left << right_bits | right


def _scramble(values: Words) -> Words:
    """Output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every input bit moves every output bit."""
    values = (values ^ values >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(31)
