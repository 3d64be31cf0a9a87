"""Profiles some of the sampled steps, as many as a share of the step time pays for, and writes what it found.

The interface below `torch.profiler` is used: reading `kineto_results.events()` costs a few milliseconds where the
public list of events costs a hundred (docs/journal.md has the measured cost). Its stamps are on another clock; two
marked moments, stamped on both, align them.
"""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import (
    DeviceType,
    ProfilerConfig,
    ProfilerState,
    _disable_profiler,
    _enable_profiler,
    _prepare_profiler,
)
from torch.autograd import ProfilerActivity as Activities
from torch.autograd.profiler import record_function

from argosy.journal.clock import mono_ns
from argosy.journal.intervals import Ints, intersect, union
from argosy.journal.phys import AXES, PHYS
from argosy.journal.recorder import Recorder
from argosy.journal.schema import DEVICE_BYTES, sampled
from argosy.training.device_time import Activity, ModuleTime, divide, module_times
from argosy.training.modules import ModuleWatch
from argosy.training.observers import Observer

WARM = 5
"""Steps of an attempt before the first profile: they compile, allocate and connect."""
_MARK = "argosy: clock"
_NO_WORK = re.compile(r"autograd::|torch::autograd|c10d::|gloo:|nccl:|record_param_comms|ProfilerStep|argosy:")
_MODULE_BYTES = 48
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it prints two lines per profile


class StepProfiler(Observer):
    """Profiles from the wait for a step's data until its update, where a profile of the step is due.

    `share` is the most that profiling may take of the time of all steps; it is measured, and the next profile waits
    until enough unprofiled time has passed. `models` are this rank's, each stage of a pipeline one; none if hooks would
    disturb them, as they make compiled code compile again. `axes` names the mesh axis of each process group, for CUDA.
    """

    def __init__(
        self,
        recorder: Recorder,
        models: Sequence[nn.Module],
        device: torch.device,
        *,
        seed: int,
        every: int,
        share: float,
        first_step: int,
        axes: dict[str, str] | None = None,
    ):
        self._recorder = recorder
        self._device = device
        self._seed, self._every, self._share = seed, every, share
        self._first_step = first_step + WARM
        self._watch = ModuleWatch(models, mono_ns)
        self._axes = axes or {}
        self._running: tuple[int, int] | None = None  # step, cost so far
        self._cost_ns = 0
        self._free_since = mono_ns()

    def on_phase(self, name: str, step: int) -> None:
        if name == "data_wait":
            self._stop()
            if self._is_due(step):
                self._start(step)
        elif name in ("eval", "ckpt_block"):
            self._stop()  # the step that it was begun for does not come

    def on_update(self, step: int, applied: bool) -> None:
        if self._running is not None and self._running[0] == step:
            with self._recorder.phase("telemetry"):
                begin, cost_ns = mono_ns(), self._running[1]
                line = list(self._recorder.line)
                stamp = _mark()
                record = self._record(step, line, self._stop(), stamp)
                self._cost_ns = cost_ns + mono_ns() - begin
                self._recorder.event("device", **record, cost=self._cost_ns)
                self._free_since = mono_ns()

    def _start(self, step: int) -> None:
        with self._recorder.phase("telemetry"):
            begin = mono_ns()
            activities = {Activities.CPU} | ({Activities.CUDA} if self._device.type == "cuda" else set())
            config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig())
            _prepare_profiler(config, activities)
            _enable_profiler(config, activities)
            _mark()
            self._watch.__enter__()
            self._running = step, mono_ns() - begin

    def _stop(self) -> list[Any]:
        """The events of the profile under way, if there is one."""
        if self._running is None:
            return []
        self._running = None
        self._watch.__exit__()
        return list(_disable_profiler().events())

    def _is_due(self, step: int) -> bool:
        if not self._share or step < self._first_step or not sampled(step, self._seed, self._every):
            return False
        return self._cost_ns <= self._share * (mono_ns() - self._free_since)

    def _record(self, step: int, line: list[tuple[int, int, int]], events: list[Any], stamp: int) -> dict[str, Any]:
        offset_ns = stamp - max(event.end_ns() for event in events if event.name() == _MARK)
        seen = self._activity(events, offset_ns)
        host: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for phys, begin, end in line:
            if phys < len(PHYS):
                host[PHYS[phys]].append((begin, end))
        sets = {name: union(intervals) for name, intervals in host.items()}
        stretches = self._watch.stretches
        in_modules: Ints = union([(begin, end) for _, begin, end in stretches])
        repeated = intersect(in_modules, sets.get("backward", in_modules[:0]))
        on_cpu = self._device.type == "cpu"
        times = module_times(stretches, sets, seen) if on_cpu else {}
        parts = divide(sets, seen, repeated, on_cpu=on_cpu, off_cpu_ns=self._recorder.off_cpu_ns)
        return {
            "s": step,
            "m": [[*pair, ns] for pair, ns in sorted(parts.items())],
            "b": _largest(times),
            "ev": seen.events,
        }

    def _activity(self, events: list[Any], offset_ns: int) -> Activity:
        seen = Activity(events=len(events))
        for event in events:
            begin = event.start_ns() + offset_ns
            at = begin, begin + event.duration_ns()
            name = event.name()
            if event.device_type() != DeviceType.CPU:
                self._device_activity(seen, name, at, event)
                continue
            number = event.sequence_nr()
            if event.scope() == 1 and number >= 0:
                seen.backward.append((*at, number))
            elif number >= 0 and event.scope() == 0 and not name.startswith("autograd::"):
                seen.forward.append((begin, number))
            if self._device.type == "cpu":
                # a wrapper around Python code proves no work; what the operators in it did has events of its own
                if "::" in name and not _NO_WORK.match(name):
                    seen.math.append(at)
            else:
                seen.runtime_call(name, at)
        return seen

    def _device_activity(self, seen: Activity, name: str, at: tuple[int, int], event: Any) -> None:
        if event.is_user_annotation():
            return
        if "nccl" in name.lower():
            found = re.search(r'"Process Group Name":\s*"([^"]+)"', event.metadata_json())
            axis = self._axes.get(found[1], "control") if found else "control"
            seen.collectives[axis if axis in AXES else "control"].append(at)
        elif name.startswith(("Memcpy", "Memset")):
            seen.copies.append(at)
        else:
            seen.math.append(at)


def _mark() -> int:
    """A moment that the profiler sees too; its stamp on our clock."""
    with record_function(_MARK):
        pass
    return mono_ns()


def _largest(times: dict[str, ModuleTime]) -> list[list[Any]]:
    """The modules that took longest, as many as a record has room for, in the order of the model."""
    most = DEVICE_BYTES // _MODULE_BYTES
    spent = {name: row.forward + row.backward + row.recompute + row.idle for name, row in times.items()}
    kept = set(sorted(spent, key=lambda name: -spent[name])[:most])
    return [[name, t.forward, t.backward, t.recompute, t.idle] for name, t in times.items() if name in kept]
