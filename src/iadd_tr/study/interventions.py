"""Test rows whose truth a simulator tells: in visited states the policy's own action, and others it would not take."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iadd_tr.agent import policy
from iadd_tr.nets import MLP
from iadd_tr.study.accuracy import HORIZONS, Paths
from iadd_tr.tasks.envs import episode_seed
from iadd_tr.tasks.host import STARTS
from iadd_tr.tasks.simulator import Act, Simulator
from iadd_tr.types import PRNGKey, Transition

KINDS = ("policy", "noisy", "uniform", "zero", "other")
"""The policy's action, that with small noise, a uniform one, the reference action, one of another seed's policy."""
PATH_KINDS = ("policy", "uniform")
NOISE = 0.1


@dataclass(frozen=True)
class Plan:
    """How much is tested for one run."""

    states: int
    """Visited states that test rows start from."""
    paths: int
    """Starts of fixed action sequences."""
    copies: int = 32
    """Copies of the task that the policy moves to find states."""
    steps: int = 1000
    """Steps of each copy; one whose episode ends goes back to its start."""


class Tests(eqx.Module):
    """What one run's models are asked."""

    rows: Transition  # [K, N]
    paths: Paths  # [2, P]


def make(key: PRNGKey, simulator: Simulator, actor: MLP, other: MLP | None, seed: int, plan: Plan) -> Tests:
    """Visit states with the policy of one run, intervene in each, and record the truth."""
    visit_key, pick_key, action_key, path_key = jax.random.split(key, 4)
    found = visit(visit_key, simulator, actor, starts(simulator, seed, plan.copies), plan.steps)
    picked = found[np.asarray(jax.random.randint(pick_key, (plan.states,), 0, len(found)))]
    rows = intervene(action_key, simulator, actor, other, picked)
    paths = [
        follow(path_key, simulator, actor if kind == "policy" else None, picked[: plan.paths]) for kind in PATH_KINDS
    ]
    return Tests(rows, jax.tree.map(lambda *x: np.stack(x), *paths))


def starts(simulator: Simulator, seed: int, count: int) -> Float[np.ndarray, "C S"]:
    """States of fresh resets."""
    return simulator.starts([episode_seed(seed, number, STARTS) for number in range(count)])


def visit(
    key: PRNGKey, simulator: Simulator, actor: MLP, first: Float[np.ndarray, "C S"], steps: int
) -> Float[np.ndarray, "V S"]:
    """Every state in which the stochastic policy acts."""
    act, states, found = jax.jit(lambda key, seen: policy.sample(key, actor, seen)[0]), first, []
    for number in range(steps):
        found.append(states)
        action = act(jax.random.fold_in(key, number), simulator.observe(states))
        reached, step = simulator.step(states, np.asarray(action))
        states = np.where(step.last[:, None], first, reached)
    return np.concatenate(found)


def intervene(
    key: PRNGKey, simulator: Simulator, actor: MLP, other: MLP | None, states: Float[np.ndarray, "N S"]
) -> Transition:
    """Every kind of action in every state: rows [K, N] with the action's density under the policy."""
    seen = simulator.observe(states)
    anchor = jnp.array(simulator.task.anchor)
    actions = jax.jit(choices)(key, actor, other, seen, anchor)
    density = jax.jit(jax.vmap(policy.log_density, (None, None, 0)))(actor, seen, actions)
    taken = [simulator.step(states, action)[1] for action in np.asarray(actions)]
    step = jax.tree.map(lambda *x: np.stack(x), *taken)
    observation, reward, reached, discount = map(
        jnp.asarray, (step.observation, step.reward, step.next_observation, step.discount)
    )
    return Transition(observation, actions, density, reward, reached, discount)


def choices(
    key: PRNGKey, actor: MLP, other: MLP | None, seen: Float[Array, "N O"], anchor: Float[Array, " A"]
) -> Float[Array, "K N A"]:
    """An action of every kind for every state; that of another seed's policy where there is one."""
    own_key, noise_key, uniform_key, other_key = jax.random.split(key, 4)
    own = policy.sample(own_key, actor, seen)[0]
    noisy = jnp.clip(own + NOISE * jax.random.normal(noise_key, own.shape), -1.0, 1.0)
    uniform = jax.random.uniform(uniform_key, own.shape, minval=-1.0, maxval=1.0)
    kinds = [own, noisy, uniform, jnp.broadcast_to(anchor, own.shape)]
    if other is not None:
        kinds.append(policy.sample(other_key, other, seen)[0])
    return jnp.stack(kinds)


def follow(key: PRNGKey, simulator: Simulator, actor: MLP | None, states: Float[np.ndarray, "P S"]) -> Paths:
    """The true trajectories of the policy, or of uniform actions where there is none."""
    trail = simulator.follow(states, _sampler(key, simulator, actor), max(HORIZONS))
    going = np.concatenate([trail.live[1:], np.zeros_like(trail.live[:1])])
    later = np.concatenate([trail.observation[1:], np.zeros_like(trail.observation[:1])])
    reached = np.where(going[..., None], later, simulator.observe(trail.states)[None])
    action, reached, live = (np.swapaxes(x, 0, 1) for x in (trail.action, reached, trail.live))
    return Paths(simulator.observe(states), action, reached, live)


def _sampler(key: PRNGKey, simulator: Simulator, actor: MLP | None) -> Act:
    def draw(key: PRNGKey, seen: Float[Array, "B O"]) -> Float[Array, "B A"]:
        if actor is not None:
            return policy.sample(key, actor, seen)[0]
        return jax.random.uniform(key, (seen.shape[0], simulator.task.actions), minval=-1.0, maxval=1.0)

    compiled = jax.jit(draw)
    return lambda number, seen: np.asarray(compiled(jax.random.fold_in(key, number), seen))
