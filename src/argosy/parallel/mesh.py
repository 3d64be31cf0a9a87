"""The device mesh of a layout: one named axis per kind of parallelism."""

from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from argosy.layout.layout import Axis, Layout
from argosy.parallel.groups import StampedGroup


@dataclass(frozen=True)
class Mesh:
    """Every axis of a layout, also those of one rank, and the process groups along them."""

    devices: dist.DeviceMesh
    down: dist.ProcessGroup | None
    """A second group along the pipeline axis, for messages against its direction (:class:`Links`)."""

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
    """A mesh over all ranks with the axes of ``layout.order``, outermost first; collective over all ranks."""
    sizes = layout.axis_sizes
    devices = init_device_mesh(device_type, tuple(sizes[axis] for axis in layout.order), mesh_dim_names=layout.order)
    down = _second_groups(layout) if layout.pp > 1 else None
    for axis in layout.order:
        _name(devices.get_group(axis), axis)
    if down is not None:
        _name(down, "pp")
    return Mesh(devices, down)


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
