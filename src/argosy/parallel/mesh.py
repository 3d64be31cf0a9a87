"""The device mesh of a layout: one named axis per kind of parallelism."""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from argosy.layout.layout import MESH_AXES, Axis, Layout
from argosy.parallel.groups import StampedGroup


@dataclass(frozen=True)
class Mesh:
    """Every axis of a layout, also those of one rank, and the process groups along them."""

    devices: dist.DeviceMesh
    down: dist.ProcessGroup | None
    """A second group along the pipeline axis, for messages against its direction (:class:`Links`)."""

    @property
    def rank(self) -> int:
        """Of this process among all."""
        return self.devices.get_rank()

    def group(self, axis: Axis) -> dist.ProcessGroup:
        """The ranks that differ from this one along `axis` only."""
        return self.devices.get_group(axis)

    def coordinate(self, axis: Axis) -> int:
        """Where this rank is on `axis`."""
        return self.devices.get_local_rank(axis)

    def sub(self, *axes: Axis) -> dist.DeviceMesh:
        """The mesh of `axes` alone around this rank."""
        return self.devices[axes]


def build_mesh(layout: Layout, device_type: str) -> Mesh:
    """A mesh over all ranks, placed as ``layout.order`` says; collective over all ranks."""
    forget_groups()
    ranks = torch.arange(layout.world_size).view(*layout.axis_sizes.values())
    # FSDP2 wants dp before fsdp before tp; which ranks lie next to each other is up to the layout.
    ranks = ranks.permute([layout.order.index(axis) for axis in MESH_AXES])
    devices = dist.DeviceMesh(device_type, ranks, mesh_dim_names=MESH_AXES)
    down = _second_groups(layout) if layout.pp > 1 else None
    for axis in MESH_AXES:
        _name(devices.get_group(axis), axis)
    if down is not None:
        _name(down, "pp")
    return Mesh(devices, down)


def forget_groups() -> None:
    """Clear DTensor's caches, in which a mesh of the same shape would find the groups of an earlier one.

    Whoever makes groups a second time in one process needs it: tests, dry runs, ranks forked from a warmed server.
    """
    from torch.distributed.tensor import debug

    for name in dir(debug):
        if name.startswith("_clear") and name.endswith("_cache"):
            getattr(debug, name)()


def _second_groups(layout: Layout) -> dist.ProcessGroup:
    """This rank's group of a second set along the pipeline axis; every rank has to help make all of them."""
    columns = {tuple(layout.group("pp", rank)) for rank in range(layout.world_size)}
    own, _ = dist.new_subgroups_by_enumeration([list(ranks) for ranks in sorted(columns)])
    assert own is not None
    return own


def _name(group: dist.ProcessGroup, axis: Axis) -> None:
    """Tell the books which axis a group serves."""
    if isinstance(group, StampedGroup):
        group.axis = axis
