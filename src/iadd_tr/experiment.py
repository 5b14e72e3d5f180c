"""The only file that knows there are many runs: it vmaps stages over them, spreads them over devices, keeps time."""

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cached_property, partial
from threading import Lock
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from iadd_tr.devices import OF_RUNS, RUNS, SHARES, make_meshes, move, on_cpu, placed, specs
from iadd_tr.runs import rows, traced
from iadd_tr.stage import Problem, Stage, joined
from iadd_tr.tasks.host import Host, Place
from iadd_tr.types import Step

CONCURRENT = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}  # kernels that do not wait for each other overlap
SAMPLED = 10  # reports of stages that run at every step are kept from every tenth


class Batch:
    """R runs in lockstep: launch a stage for all of them by calling the batch with it."""

    def __init__(self, problem: Problem, places: Sequence[Place] | None = None):
        self.problem = problem
        self.rows = rows(problem.settings)
        self.meshes = make_meshes(len(self.rows), problem.settings.model.members, problem.settings.agent.batch)
        run = traced(problem.settings, self.rows)
        self.runs = {spread: jax.device_put(run, placed(mesh)) for spread, mesh in self.meshes.items()}
        self.shape = (len(self.rows), *problem.settings.seats)
        self.places = places
        self.programs: dict[Stage, Any] = {}
        self.seconds: dict[str, float] = defaultdict(float)
        self.infos: dict[str, list[Any]] = defaultdict(list)
        self.on_step: Callable[[], None] = lambda: None
        self._pending: deque[tuple[str, Any]] = deque()
        self._helpers, self._tracing = ThreadPoolExecutor(), Lock()
        self._stepper = ThreadPoolExecutor(1)
        self._compiling: dict[Stage, Future] = {}
        self._begun: dict[tuple[Stage | int, ...], Future] = {}

    @cached_property
    def host(self) -> Host:
        """The runs' environments, made when they are first asked for."""
        seats = math.prod(self.shape[1:])
        return Host(self.problem.task, [row.seed for row in self.rows], self.places, seats)

    def close(self) -> None:
        """Let the environments go, when a step under way is done."""
        self._stepper.shutdown()
        wait(self._begun.values())
        if "host" in vars(self):
            self.host.close()

    def __call__(self, stage: Stage, *arguments: Any) -> Any:
        """Launch a stage; its info is kept for the epoch's report."""
        stage, arguments = self.fed(stage, arguments)
        if stage.wait:
            self.settle()
        start = time.perf_counter()
        if stage in self._compiling:
            self._compiling.pop(stage).result()
        begun = self._begun.pop((stage, *arguments[: stage.shared]), None)
        output, info = begun.result() if begun else self.program(stage)(*self._given(stage, arguments))
        if stage.wait:
            jax.block_until_ready(output)
        elif info is not None:  # small, and ready when the output is
            self._pending.append((stage.name, info))
        if info is not None and (stage.wait or arguments[0] % SAMPLED == 0):
            self.infos[stage.name].append(info)
        self.seconds[stage.name] += time.perf_counter() - start
        return output

    def look_ahead(self, stage: Stage, *arguments: Any) -> None:
        """Begin a stage that gives nothing away and is the next to be called, with these arguments, if the host would
        but wait for the processes of environments meanwhile."""
        if self.host.apart:
            program, given = self.program(stage), self._given(stage, arguments)
            self._begun[stage, *arguments[: stage.shared]] = self._helpers.submit(program, *given)

    def prepare(self, stage: Stage, *arguments: Any) -> None:
        """Begin to compile a stage for such arguments; its first call waits for the end."""
        stage, arguments = self.fed(stage, arguments)
        program, shapes = self.program(stage), jax.tree.map(shape_of, self._given(stage, arguments))

        def compile_it() -> None:
            with self._tracing:  # one after another, so that the first can be compiled while the next is traced
                lowered = program.lower(*shapes)
            lowered.compile()

        self._compiling[stage] = self._helpers.submit(compile_it)

    def fed(self, stage: Stage, arguments: tuple[Any, ...]) -> tuple[Stage, tuple[Any, ...]]:
        """A stage without a source, and its arguments: its source is joined to it, or has made the last of them."""
        if stage.source is None:
            return stage, arguments
        if not takes_turns(stage):
            return joined(stage, stage.source), arguments
        first, given = arguments[: stage.shared + 1], arguments[stage.shared + 1 :]
        return replace(stage, source=None), (*first, self(stage.source, *first[:-1], *given))

    def _given(self, stage: Stage, arguments: Sequence[Any]) -> list[Any]:
        """A program's arguments, where it wants them."""
        shared = [np.int32(value) for value in arguments[: stage.shared]]
        own, mesh = list(arguments[stage.shared :]), self.meshes[stage.spread]
        if len(set(self.meshes.values())) > 1:
            lie = specs(stage.spread, len(own) + 1)[1:]
            own = [move(x, placed(mesh, spec)) for x, spec in zip(own, lie, strict=True)]
        return [*shared, self.runs[stage.spread], *own]

    def place(self, value: Any) -> Any:
        """What was made elsewhere, on the devices of its runs."""
        return jax.device_put(value, placed(self.meshes[None]))

    def settle(self, leave: int = 0) -> None:
        """Wait for the updates under way, but for the last so many, and count the wait as theirs."""
        while len(self._pending) > leave:
            name, info = self._pending.popleft()
            start = time.perf_counter()
            jax.block_until_ready(info)
            self.seconds[name] += time.perf_counter() - start

    @property
    def observations(self) -> np.ndarray:
        """Where the environments stand, [R, O], or [R, N, O] where a run has several."""
        return self._by_run(self.host.observations.copy())

    def steps(self, epoch: int) -> range:
        """The environment steps of an epoch, counted over all environments of a run."""
        length = self.problem.settings.loop.epoch_length
        return range(epoch * length, (epoch + 1) * length, math.prod(self.shape[1:]))

    def execute(self, choice: Any) -> Callable[[], Step]:
        """Let every run's environments take their chosen actions; the answer waits for what they led to.

        Those in processes of their own do it while the device is given its next work, which takes as long.
        """

        def take() -> Step:
            return self.host.step(np.asarray(choice.action).reshape(-1, self.problem.task.actions))

        taking = self._stepper.submit(take).result if self.host.apart else take

        def join() -> Step:
            self.settle(leave=1)
            start = time.perf_counter()
            step = taking()
            self.seconds["environment"] += time.perf_counter() - start
            self.on_step()
            return jax.tree.map(self._by_run, step)

        return join

    def walk(self, choices: Any) -> Step:
        """Many steps of every run's environment, with actions [R, T, A] chosen beforehand."""
        return self.host.walk(np.asarray(choices.action))

    def _by_run(self, value: np.ndarray) -> np.ndarray:
        """An array over all environments as one over runs and, where a run has several, over them."""
        return value.reshape(*self.shape, *value.shape[1:])

    def program(self, stage: Stage) -> Any:
        """The stage compiled over the runs axis, once."""
        if stage not in self.programs:
            self.programs[stage] = over_runs(self.problem, stage, self.meshes[stage.spread])
        return self.programs[stage]

    def report(self) -> tuple[dict[str, list[dict[str, float]]], dict[str, float]]:
        """Per stage and run the means of what its stages said since the last report, and the seconds of each."""
        self.settle()
        infos = {name: average(kept, len(self.rows)) for name, kept in self.infos.items()}
        seconds = dict(self.seconds)
        self.infos.clear()
        self.seconds.clear()
        return infos, seconds


def over_runs(problem: Problem, stage: Stage, mesh: Mesh | None) -> Any:
    """A stage for R runs: vmapped or in turn, and on each device for the runs that live there."""

    def program(*arguments: Any) -> Any:
        function = partial(stage.function, problem)
        axes = [None] * stage.shared + [0] * (len(arguments) - stage.shared)
        mapped = in_turn(function, stage.shared) if takes_turns(stage) else jax.vmap(function, in_axes=axes)
        if mesh is None:
            return mapped(*arguments)
        given = (*[PartitionSpec()] * stage.shared, *specs(stage.spread, len(arguments) - stage.shared))
        split = {RUNS, SHARES} if stage.spread == "rows" else {RUNS}
        spread = jax.shard_map(mapped, mesh=mesh, in_specs=given, out_specs=OF_RUNS, axis_names=split, check_vma=False)
        return spread(*arguments)

    program.__name__ = stage.function.__name__
    donated = tuple(stage.shared + 1 + position for position in stage.donate)
    options = CONCURRENT if jax.default_backend() == "gpu" else None
    return jax.jit(program, donate_argnums=donated, out_shardings=placed(mesh), compiler_options=options)


def in_turn(function: Callable, shared: int) -> Callable:
    """A function for many runs, one after another, whose first so many arguments are the same for all."""

    def one_by_one(*arguments: Any) -> Any:
        return jax.lax.map(lambda own: function(*arguments[:shared], *own), arguments[shared:])

    return one_by_one


def takes_turns(stage: Stage) -> bool:
    """Whether a device trains its runs one after another, as a CPU's core does: its cache holds what one run trains."""
    return stage.spread is not None and on_cpu()


def shape_of(value: Any) -> jax.ShapeDtypeStruct:
    """What a program is compiled for, which outlives an array that is given away."""
    sharding = value.sharding if isinstance(value, jax.Array) and value.committed else None
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding, weak_type=jax.typeof(value).weak_type)


def average(infos: Sequence[Any], runs: int) -> list[dict[str, float]]:
    """One dictionary per run of the means over many infos."""
    fetched = jax.device_get(list(infos))
    names = [name for name in vars(fetched[0]) if not name.startswith("_")]
    means = {name: np.mean([getattr(info, name) for info in fetched], axis=0) for name in names}
    return [{name: float(means[name][run]) for name in names} for run in range(runs)]
