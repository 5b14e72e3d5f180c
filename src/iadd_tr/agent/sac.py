"""Soft actor-critic with an adjusted critic: three updates, composed in `update`."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from iadd_tr.agent import critic, policy, targeted
from iadd_tr.nets import MLP
from iadd_tr.settings import Agent
from iadd_tr.types import PRNGKey, Run, Transition

ADAM = optax.scale_by_adam()
Trained = TypeVar("Trained")


class Learner(eqx.Module, Generic[Trained]):
    """A trained thing and its Adam moments."""

    value: Trained
    moments: optax.OptState


class State(eqx.Module):
    actor: Learner[MLP]
    critics: Learner[MLP]
    slow_critics: MLP
    epsilon: Learner[MLP] | None  # the correction, where a run of the batch has beta > 0
    slow_epsilon: MLP | None
    log_temperature: Learner[Float[Array, ""]]


class Info(eqx.Module):
    """Means over the batch, logged once per epoch."""

    critic_loss: Float[Array, ""]
    targeted_loss: Float[Array, ""]
    actor_loss: Float[Array, ""]
    temperature: Float[Array, ""]
    entropy: Float[Array, ""]
    value: Float[Array, ""]
    correction: Float[Array, ""]  # mean |epsilon / e|
    floored: Float[Array, ""]  # share of rows whose density was raised to the floor


def init(key: PRNGKey, observations: int, actions: int, agent: Agent, with_targeting: bool) -> State:
    """A fresh agent; targets start as copies."""
    actor_key, critic_key, epsilon_key = jax.random.split(key, 3)
    critics = critic.init(critic_key, observations, actions, agent.hidden)
    epsilon = targeted.init(epsilon_key, actions, agent.epsilon_hidden) if with_targeting else None
    return State(
        actor=learner(policy.init(actor_key, observations, actions, agent.hidden)),
        critics=learner(critics),
        slow_critics=critics,
        epsilon=None if epsilon is None else learner(epsilon),
        slow_epsilon=epsilon,
        log_temperature=learner(jnp.zeros(())),
    )


def improve(
    key: PRNGKey,
    state: State,
    draw: Callable[[PRNGKey], Transition],
    run: Run,
    agent: Agent,
    updates: int,
) -> tuple[State, Info]:
    """Several updates, each on a freshly drawn batch, and the means of what they report."""

    def step(state: State, key: PRNGKey) -> tuple[State, Info]:
        draw_key, update_key = jax.random.split(key)
        return update(update_key, state, draw(draw_key), run, agent)

    state, info = jax.lax.scan(step, state, jax.random.split(key, updates))
    return state, jax.tree.map(jnp.mean, info)


def update(key: PRNGKey, state: State, rows: Transition, run: Run, agent: Agent) -> tuple[State, Info]:
    """One step of the critics and their correction, then of the actor and the temperature."""
    critic_key, actor_key = jax.random.split(key)
    state, critic_info = update_critics(critic_key, state, rows, run, agent)
    state, actor_info = update_actor(actor_key, state, rows, run)
    floored = jnp.mean(rows.log_density < run.log_floor, dtype=jnp.float32)
    return state, Info(**critic_info, **actor_info, floored=floored)


def update_critics(
    key: PRNGKey, state: State, rows: Transition, run: Run, agent: Agent
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Minimise Eq. 20: the critics against Eq. 12, then the correction against Eq. 18 with the critics fixed."""
    next_action, next_log_density = policy.sample(key, state.actor.value, rows.next_observation)
    bonus = -jnp.exp(state.log_temperature.value) * next_log_density
    discount = agent.gamma * rows.discount
    next_value = critic.values(state.slow_critics, rows.next_observation, next_action)
    target = critic.bellman_target(rows.reward, discount, next_value, bonus)
    (td_loss, value), gradient = jax.value_and_grad(critic.td_loss, has_aux=True)(
        state.critics.value, rows.observation, rows.action, target
    )
    critics = descend(state.critics, gradient, run.agent_rate)
    slow = follow(state.slow_critics, critics.value, agent.polyak)
    state = eqx.tree_at(lambda s: (s.critics, s.slow_critics), state, (critics, slow))
    info = {"critic_loss": td_loss, "value": jnp.mean(value)}
    if state.epsilon is None:
        return state, {**info, "targeted_loss": jnp.zeros(()), "correction": jnp.zeros(())}

    next_adjusted = targeted.adjust(state.slow_epsilon, next_value, next_action, next_log_density, run.log_floor)
    adjusted_target = critic.bellman_target(rows.reward, discount, next_adjusted, bonus)
    (loss, shift), gradient = jax.value_and_grad(targeted.loss, has_aux=True)(
        state.epsilon.value, value, rows.action, rows.log_density, run.log_floor, adjusted_target
    )
    gradient = jax.tree.map(lambda g: run.beta * g, gradient)
    epsilon = descend(state.epsilon, gradient, run.targeted_rate)
    slow_epsilon = follow(state.slow_epsilon, epsilon.value, agent.polyak)
    state = eqx.tree_at(lambda s: (s.epsilon, s.slow_epsilon), state, (epsilon, slow_epsilon))
    return state, {**info, "targeted_loss": loss, "correction": jnp.mean(jnp.abs(shift))}


def update_actor(key: PRNGKey, state: State, rows: Transition, run: Run) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Ascend the adjusted critic (Eq. 21, reparameterised) plus entropy, and steer the temperature."""
    temperature = jnp.exp(state.log_temperature.value)

    def loss(actor: MLP) -> tuple[Float[Array, ""], Float[Array, ""]]:
        action, log_density = policy.sample(key, actor, rows.observation)
        adjusted = targeted.adjust(
            None if state.epsilon is None else state.epsilon.value,
            critic.values(state.critics.value, rows.observation, action),
            action,
            jax.lax.stop_gradient(log_density),
            run.log_floor,
        )
        return jnp.mean(temperature * log_density - jnp.min(adjusted, axis=0)), -jnp.mean(log_density)

    (actor_loss, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor.value)
    actor = descend(state.actor, gradient, run.agent_rate)
    log_temperature = descend(state.log_temperature, entropy - run.target_entropy, run.agent_rate)
    state = eqx.tree_at(lambda s: (s.actor, s.log_temperature), state, (actor, log_temperature))
    return state, {"actor_loss": actor_loss, "entropy": entropy, "temperature": temperature}


def learner(value: Trained) -> Learner[Trained]:
    """A thing about to be trained."""
    return Learner(value, ADAM.init(value))  # pyright: ignore


def descend(learner: Learner[Trained], gradient: Any, rate: Float[Array, ""]) -> Learner[Trained]:
    """One step of Adam."""
    direction, moments = ADAM.update(gradient, learner.moments)
    return Learner(jax.tree.map(lambda p, d: p - rate * d, learner.value, direction), moments)


def follow(slow: Any, fast: Any, polyak: float) -> Any:
    """Polyak averaging."""
    return jax.tree.map(lambda s, f: s + polyak * (f - s), slow, fast)
