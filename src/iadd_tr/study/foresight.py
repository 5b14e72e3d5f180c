"""What an agent knows of the ends of its episodes: its critics' values and its model's futures, against the truth."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import rollout
from iadd_tr.agent import critic, policy
from iadd_tr.agent.sac import State as Agent
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.nets import MLP
from iadd_tr.study.frozen import returns
from iadd_tr.tasks.crowd import LONGEST_EPISODE
from iadd_tr.tasks.envs import Reflex, walk
from iadd_tr.tasks.task import Task
from iadd_tr.types import Ending, PRNGKey

BEFORE = (1, 2, 5, 10, 20, 50, 100)
"""Steps before an end at which the agent is asked."""
DRAWS = 4
"""Imagined futures by each elite, from each state."""


class Episode(NamedTuple):
    """An episode of a deterministic policy; `ended` says whether it came to a true end or to its time limit."""

    observation: Float[np.ndarray, "T O"]
    action: Float[np.ndarray, "T A"]
    reward: Float[np.ndarray, " T"]
    ended: bool


def play(task: Task, reflex: Reflex, seeds: Sequence[int]) -> list[Episode]:
    """An episode from each seeded reset."""
    env, bounds, episodes = task.make(), (np.asarray(task.low), np.asarray(task.high)), []
    for seed in seeds:
        steps = islice(walk(env, env.reset(seed=seed)[0], reflex, bounds), LONGEST_EPISODE)
        *columns, ends = zip(*steps, strict=True)
        observations, actions, rewards = (np.asarray(column, np.float32) for column in columns)
        episodes.append(Episode(observations, actions, rewards, ends[-1]))
    env.close()
    return episodes


def summary(agent: Agent, episodes: Sequence[Episode], gamma: float) -> dict[str, float]:
    """Means over episodes; the value is what the critics expect of the first step."""
    firsts = jnp.array([e.observation[0] for e in episodes]), jnp.array([e.action[0] for e in episodes])
    return {
        "steps": float(np.mean([len(e.reward) for e in episodes])),
        "ended": float(np.mean([e.ended for e in episodes])),
        "return": float(np.mean([e.reward.sum() for e in episodes])),
        "discounted_return": float(np.mean([returns(e.reward[:, None], gamma) for e in episodes])),
        "value": float(jnp.mean(values(agent.critics.value, *firsts))),
    }


def before_ends(
    key: PRNGKey,
    agent: Agent,
    model: Ensemble,
    ending: Ending | None,
    episodes: Sequence[Episode],
    gamma: float,
    least_noise: float,
) -> list[dict[str, Any]]:
    """So many steps before an end: the critics' value, the rewards that were to come, and the share of imagined futures
    that end within twice as many steps."""
    found = []
    for before in BEFORE:
        long_enough = [e for e in episodes if e.ended and len(e.reward) >= before]
        if not long_enough:
            break
        observation, action = (
            jnp.array([getattr(e, name)[-before] for e in long_enough]) for name in ("observation", "action")
        )
        start = jnp.resize(observation, (len(episodes), observation.shape[1]))  # so that one program serves all
        lives = survives(key, agent.actor.value, model, start, 2 * before, ending, least_noise)
        found.append(
            {
                "before": before,
                "episodes": len(long_enough),
                "value": float(jnp.mean(values(agent.critics.value, observation, action))),
                "to_go": float(np.mean([returns(e.reward[-before:, None], gamma) for e in long_enough])),
                "foreseen": float(1.0 - jnp.mean(lives[: len(long_enough)])),
            }
        )
    return found


def values(critics: MLP, observation: Float[Array, "B O"], action: Float[Array, "B A"]) -> Float[Array, " B"]:
    """The lower of the twins."""
    return jnp.min(critic.values(critics, observation, action), axis=0)


@jax.jit(static_argnames=("ending", "least_noise"))
def survives(
    key: PRNGKey,
    actor: MLP,
    model: Ensemble,
    start: Float[Array, "B O"],
    horizon: Int[Array, ""] | int,
    ending: Ending | None,
    least_noise: float,
) -> Float[Array, " B"]:
    """The share of imagined futures of the deterministic policy, from each start, that go on after `horizon` steps."""
    futures = DRAWS * model.elites.size

    def step(i: Int[Array, ""], carry: tuple[Float[Array, "N O"], Bool[Array, " N"]]):
        observation, live = carry
        shuffle_key, outcome_key, end_key = jax.random.split(jax.random.fold_in(key, i), 3)
        order = jax.random.permutation(shuffle_key, live.size)  # each row meets a random elite
        action = jnp.tanh(policy.distribution(actor, observation)[0])
        outcome = ensembles.sample(outcome_key, model, observation[order], action[order], least_noise)
        ended = rollout.ends(end_key, outcome, ending) | ~rollout.finite(outcome)
        back = jnp.argsort(order)
        return outcome.next_observation[back], live & ~ended[back]

    first = jnp.repeat(start, futures, axis=0)
    _, live = jax.lax.fori_loop(0, horizon, step, (first, jnp.ones(len(first), bool)))
    return jnp.mean(live.reshape(-1, futures), axis=1, dtype=jnp.float32)
