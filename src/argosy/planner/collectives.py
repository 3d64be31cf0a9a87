"""Time of collectives by size, placement and who shares the cards.

A group is placed by its size and the stride between its members: those inside one scale-up domain talk over its
link, the rest over network cards. Ring formulas as in Thakur et al. 2005 and NCCL's documentation.
"""

from dataclasses import dataclass

import numpy as np

from argosy.planner.constants import Values
from argosy.planner.workload import Array, Workload


@dataclass(frozen=True)
class Group:
    """How the members of one process group are spread."""

    size: Array
    local: Array
    """Members inside one scale-up domain."""
    bytes_per_s: Array
    """Bus bandwidth of a large ring over the group."""
    ring_s: Array
    """Latency of a ring pass: one hop per member, and every step waits for the slowest hop."""
    tree_s: Array
    """Latency of one way through a tree: hops inside the domain, then a logarithm of the nodes."""


def group(w: Workload, c: Values, size: Array, stride: Array) -> Group:
    """The group of `size` ranks that are `stride` ranks apart."""
    local = np.clip(w.domain / np.maximum(stride, 1.0), 1.0, np.maximum(size, 1.0))
    nodes = np.maximum(size, 1.0) / local
    link = w.link_bytes_per_s * c.link
    # Groups side by side share the node's cards; one group has as many cards as it has members there
    card = w.nic_bytes_per_s * np.where(w.ethernet > 0, c.nic_cloud, c.nic) * local
    # Congestion and unequal paths grow with the number of nodes of a group
    card = card / (1.0 + c.congestion * np.log2(np.maximum(nodes, 1.0)))
    slow = np.where(nodes > 1.0, 1.0, 0.0)
    bytes_per_s = 1.0 / (slow * np.maximum(1.0 / card, 1.0 / link) + (1.0 - slow) / link)
    hop = np.where(w.ethernet > 0, c.alpha_cloud, c.alpha_net)
    steps = np.maximum(size, 1.0) - 1.0
    ring = c.alpha + steps * np.where(nodes > 1.0, hop, c.alpha_link)
    tree = c.alpha + (local - 1.0) * c.alpha_link + np.log2(np.maximum(nodes, 1.0)) * hop
    return Group(size, local, bytes_per_s, ring, np.minimum(tree, ring))


def pass_s(g: Group, total_bytes: Array, calls: Array | float = 1.0) -> Array:
    """All-gather or reduce-scatter of `total_bytes` (the full tensor) in `calls` messages.

    (n-1)/n · S / B, and a ring's latency for each message.
    """
    share = (g.size - 1.0) / g.size
    return np.where(g.size > 1.0, share * total_bytes / g.bytes_per_s + calls * g.ring_s, 0.0)


def all_reduce_s(g: Group, total_bytes: Array, calls: Array | float = 1.0) -> Array:
    """2 (n-1)/n · S / B; small messages go through a tree."""
    share = 2.0 * (g.size - 1.0) / g.size
    return np.where(g.size > 1.0, share * total_bytes / g.bytes_per_s + 2.0 * calls * g.tree_s, 0.0)


def all_to_all_s(g: Group, bytes_per_rank: Array) -> Array:
    """Every rank sends `bytes_per_rank` in equal parts; only what leaves the domain crosses the cards."""
    inside = (g.local - 1.0) / g.size
    outside = (g.size - g.local) / g.size
    per_card = g.bytes_per_s / np.maximum(g.local, 1.0)
    seconds = np.where(g.size > g.local, outside * bytes_per_rank / per_card, inside * bytes_per_rank / g.bytes_per_s)
    return np.where(g.size > 1.0, seconds + g.tree_s, 0.0)
