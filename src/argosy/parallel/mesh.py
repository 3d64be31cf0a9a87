"""The device mesh of a layout: one named axis per kind of parallelism."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from argosy.layout.layout import Layout
from argosy.parallel.groups import name_axes


def build_mesh(layout: Layout, device_type: str) -> dist.DeviceMesh:
    """A mesh over all ranks with the axes of ``layout.order``, outermost first, also those of size 1."""
    sizes = layout.axis_sizes
    mesh = init_device_mesh(device_type, tuple(sizes[axis] for axis in layout.order), mesh_dim_names=layout.order)
    name_axes(mesh)
    return mesh
