"""What a part must compute and move, and what the device can: their ratio is the time below which no code gets."""

import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iadd_tr.dynamics import ensemble
from iadd_tr.stage import Problem

FLOAT = 4
SERIES = 3


class Rates(NamedTuple):
    """Operations of a large matrix product, and bytes read or written by a large sum, per second."""

    operations: float
    bytes: float


class Work(NamedTuple):
    operations: float
    bytes: float

    def times(self, count: float | int) -> "Work":
        return Work(self.operations * count, self.bytes * count)

    def plus(self, other: "Work") -> "Work":
        return Work(self.operations + other.operations, self.bytes + other.bytes)

    def seconds(self, rates: Rates) -> float:
        """The floor: everything else overlaps with whichever takes longer."""
        return max(self.operations / rates.operations, self.bytes / rates.bytes)


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """The time of a call among `repeats`, launched as training does, without waiting in between: the median of three
    such series. A call of a second or more stands for a series."""
    jax.block_until_ready(call())
    if series(call, 1) >= 1.0:
        repeats = 1
    return float(np.median([series(call, repeats) for _ in range(SERIES)]))


def series(call: Callable[[], Any], repeats: int) -> float:
    """Seconds per call."""
    start = time.perf_counter()
    for _ in range(repeats - 1):
        call()
    jax.block_until_ready(call())
    return (time.perf_counter() - start) / repeats


def measure() -> Rates:
    """What this device can do."""
    device = jax.devices()[0]
    size = 8192 if device.platform == "gpu" else 2048
    square, long = jnp.ones((size, size)), jnp.ones(size * size)
    product, sum_ = jax.jit(lambda x: x @ x), jax.jit(lambda x: x + 1.0)
    return Rates(
        2.0 * size**3 / median_seconds(lambda: product(square), 10),
        2.0 * FLOAT * size**2 / median_seconds(lambda: sum_(long), 10),
    )


def beside(line: dict[str, Any], rates: Rates) -> dict[str, Any]:
    """A line with its floor at rates that were measured at the same time, so that a busy machine slows down both."""
    floor = 1e3 * Work(line["operations"], line["bytes"]).seconds(rates)
    rated = {"operations_per_second": rates.operations, "bytes_per_second": rates.bytes}
    return {**line, "floor": floor, "ratio": line["milliseconds"] / floor, **rated}


def weights(sizes: Sequence[int]) -> int:
    """Weights of a perceptron."""
    return sum(i * j for i, j in pairwise(sizes))


def passes(sizes: Sequence[int], forward: int = 1, weight_gradient: int = 0, input_gradient: int = 0) -> float:
    """Operations of so many passes for one row; beside weight gradients none is needed of the inputs themselves."""
    count = weights(sizes)
    backward = count - sizes[0] * sizes[1] if weight_gradient else count
    return 2.0 * (count * (forward + weight_gradient) + backward * input_gradient)


def update(problem: Problem, targeted: bool) -> Work:
    """One update of one run: actor and twin critics forward and back, Adam and the slow copies."""
    task, agent = problem.task, problem.settings.agent
    wide = [agent.hidden] * 2
    actor = [task.observations, *wide, 2 * task.actions]
    critic = [task.observations + task.actions, *wide, 1]
    epsilon = [task.actions, *[agent.epsilon_hidden] * 2, 1]
    row = passes(actor) + passes(actor, 1, 1, 1)
    moved = 6.0 * weights(actor)
    for twin in [critic, epsilon] if targeted else [critic]:
        row += 2 * (passes(twin) + passes(twin, 1, 1, 1) + passes(twin, 1, 0, 1))
        moved += 2 * 8.0 * weights(twin)
    return Work(agent.batch * row, FLOAT * moved)


def member_weights(problem: Problem) -> tuple[int, int, int]:
    """Weights of a member, of its first layer, and of what is computed once more for the reference action."""
    task, model = problem.task, problem.settings.model
    reference = jnp.array(task.anchor) if problem.settings.two_stage else None
    key = jax.random.key(0)

    def stacked() -> list[jax.Array]:
        return jax.tree.leaves(ensemble.init(key, model, task.observations, task.actions, reference).parameters.members)

    sizes = [math.prod(leaf.shape[1:]) for leaf in jax.eval_shape(stacked) if leaf.ndim == 3]
    twice = problem.settings.two_stage and model.form == "smooth"
    return sum(sizes), sizes[0], sum(sizes[: model.depths[0] + 1]) if twice else 0


def gradient_step(problem: Problem) -> Work:
    """One step of one run's ensemble: every member forward and back on its own rows, and Adam."""
    model = problem.settings.model
    every, first, again = member_weights(problem)
    row = 2.0 * (3 * (every + again) - first * (2 if again else 1))
    operations = model.members * model.fit_batch * row
    return Work(operations, FLOAT * 6.0 * model.members * every)


def imagined_row(problem: Problem) -> Work:
    """One imagined step: the actor and one member forward, and the row written."""
    task, agent = problem.task, problem.settings.agent
    every, _, again = member_weights(problem)
    actor = passes([task.observations, agent.hidden, agent.hidden, 2 * task.actions])
    return Work(actor + 2.0 * (every + again), FLOAT * (2.0 * task.observations + task.actions + 3))
