"""Which module the host is in, from hooks that are there in profiled steps only."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

DEPTH = 3
"""Of the modules that have a line of their own: ``blocks.0.attention`` has one, what is inside has not."""
_WRAPPERS = ("_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module")


class ModuleWatch:
    """Stretches of time by the innermost module under way, in a forward pass or one that is repeated in backward."""

    def __init__(self, models: Sequence[nn.Module], clock: Callable[[], int]):
        self._clock = clock
        self._watched = [
            (name, module) for model in models for name, module in _with_short_names(model) if name.count(".") < DEPTH
        ]
        self._handles: list[RemovableHandle] = []
        self._stack: list[str] = []
        self._mark = 0
        self.stretches: list[tuple[str, int, int]] = []
        """(module, begin, end) in order, disjoint [ns]; the whole model is ``model``."""

    def __enter__(self) -> "ModuleWatch":
        self.stretches, self._stack = [], []
        for name, module in self._watched:
            self._handles.append(module.register_forward_pre_hook(self._enter(name)))
            self._handles.append(module.register_forward_hook(self._leave))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enter(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self._close()
            self._stack.append(name)

        return hook

    def _leave(self, *_: Any) -> None:
        self._close()
        if self._stack:
            self._stack.pop()

    def _close(self) -> None:
        now = self._clock()
        if self._stack:
            self.stretches.append((self._stack[-1], self._mark, now))
        self._mark = now


def _with_short_names(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """All modules that run by themselves, by the name that they have without wrappers."""
    found = {"model": model}
    for name, module in model.named_modules():
        short = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
        if short and not isinstance(module, nn.ModuleDict | nn.ModuleList):
            found.setdefault(short, module)
    return list(found.items())
