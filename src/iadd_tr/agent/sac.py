"""Soft actor-critic with an adjusted critic: three updates, composed in `update`."""

from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from iadd_tr import adam, devices
from iadd_tr.agent import critic, policy, targeted
from iadd_tr.agent.targeted import Epsilon, Seen, Solved
from iadd_tr.nets import MLP, in_training, multiplying
from iadd_tr.settings import Agent
from iadd_tr.types import PRNGKey, Run, Transition

Trained = TypeVar("Trained")


class Learner(eqx.Module, Generic[Trained]):
    """A trained thing and its Adam moments."""

    value: Trained
    moments: optax.OptState


class State(eqx.Module):
    actor: Learner[MLP]
    critics: Learner[MLP]
    slow_critics: MLP
    epsilon: Learner[MLP] | Solved | None  # the correction, where a run of the batch has beta > 0
    slow_epsilon: Epsilon | None
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
    epsilon = uncorrected(epsilon_key, actions, agent) if with_targeting else None
    return State(
        actor=learner(policy.init(actor_key, observations, actions, agent.hidden)),
        critics=learner(critics),
        slow_critics=critics,
        epsilon=epsilon,
        slow_epsilon=None if epsilon is None else epsilon.value,
        log_temperature=learner(jnp.zeros(())),
    )


def uncorrected(key: PRNGKey, actions: int, agent: Agent) -> Learner[MLP] | Solved:
    """A correction of zero, about to be fitted."""
    if agent.targeting == "solve":
        return targeted.unsolved(actions, agent.epsilon_degree)
    return learner(targeted.init(key, actions, agent.epsilon_hidden))


class Noise(eqx.Module):
    """The standard normal draws of one update."""

    next_action: Float[Array, "*U B A"]
    action: Float[Array, "*U B A"]


class Minibatches(eqx.Module):
    """What U updates read."""

    rows: Transition  # [U, B]
    noise: Noise


def with_noise(key: PRNGKey, rows: Transition) -> Minibatches:
    """Rows [U, B], and the noise that each answers with."""
    next_key, key = jax.random.split(key)
    shape = rows.action.shape
    return Minibatches(rows, Noise(jax.random.normal(next_key, shape), jax.random.normal(key, shape)))


def improve(state: State, minibatches: Minibatches, run: Run, agent: Agent) -> tuple[State, Info]:
    """An update for each of the minibatches; the last one reports."""
    state = in_training(state)
    before, last = (jax.tree.map(lambda x, part=part: x[part], minibatches) for part in (slice(-1), -1))
    state, _ = jax.lax.scan(lambda state, x: (update(x.noise, state, x.rows, run, agent)[0], None), state, before)
    state, info = update(last.noise, state, last.rows, run, agent)
    info = devices.mean(info)
    if isinstance(state.epsilon, Solved):
        epsilon = targeted.resolve(state.epsilon, run.beta, run.log_floor, agent.epsilon_ridge)
        state = eqx.tree_at(lambda s: s.epsilon, state, epsilon)
    return multiplying(jnp.dot, state), info


def update(noise: Noise, state: State, rows: Transition, run: Run, agent: Agent) -> tuple[State, Info]:
    """One step of the critics and their correction, then of the actor and the temperature."""
    state, critic_info = update_critics(noise, state, rows, run, agent)
    state, actor_info = update_actor(noise, state, rows, run)
    floored = jnp.mean(rows.log_density < run.log_floor, dtype=jnp.float32)
    return state, Info(**critic_info, **actor_info, floored=floored)


def update_critics(
    noise: Noise, state: State, rows: Transition, run: Run, agent: Agent
) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Minimise Eq. 20: the critics against Eq. 12, then the correction against Eq. 18 with the critics fixed."""
    after = look_ahead(noise, state, rows, agent)
    target = critic.bellman_target(rows.reward, after.discount, after.value, after.bonus)
    (td_loss, value), gradient = jax.value_and_grad(critic.td_loss, has_aux=True)(
        state.critics.value, rows.observation, rows.action, target
    )
    lesson, targeted_loss, correction = teach(state, rows, value, after, run, agent)
    gradient, lesson = devices.mean((gradient, lesson))
    critics = descend(state.critics, gradient, run.agent_rate)
    slow = follow(state.slow_critics, critics.value, agent.polyak)
    state = eqx.tree_at(lambda s: (s.critics, s.slow_critics), state, (critics, slow))
    if state.epsilon is not None:
        epsilon = learn(state.epsilon, lesson, run, agent)
        slow_epsilon = follow(state.slow_epsilon, epsilon.value, agent.polyak)
        state = eqx.tree_at(lambda s: (s.epsilon, s.slow_epsilon), state, (epsilon, slow_epsilon))
    info = {"critic_loss": td_loss, "value": jnp.mean(value)}
    return state, {**info, "targeted_loss": targeted_loss, "correction": correction}


class After(eqx.Module):
    """What the policy answers to a minibatch's next states, and what it is worth there."""

    action: Float[Array, "B A"]
    log_density: Float[Array, " B"]
    value: Float[Array, "2 B"]
    bonus: Float[Array, " B"]
    discount: Float[Array, " B"]


def look_ahead(noise: Noise, state: State, rows: Transition, agent: Agent) -> After:
    """The slow critics' values, the bonus of entropy, and gamma or 0."""
    action, log_density = policy.respond(noise.next_action, state.actor.value, rows.next_observation)
    value = critic.values(state.slow_critics, rows.next_observation, action)
    bonus = -jnp.exp(state.log_temperature.value) * log_density
    return After(action, log_density, value, bonus, agent.gamma * rows.discount)


def teach(
    state: State, rows: Transition, value: Float[Array, "2 B"], after: After, run: Run, agent: Agent
) -> tuple[MLP | Seen | None, Float[Array, ""], Float[Array, ""]]:
    """What a minibatch teaches the correction, the targeted loss, and the mean correction."""
    if state.epsilon is None:
        return None, jnp.zeros(()), jnp.zeros(())
    next_value = after.value
    if agent.epsilon_target == "online":
        next_value = critic.values(state.critics.value, rows.next_observation, after.action)
    adjusted = targeted.adjust(state.slow_epsilon, next_value, after.action, after.log_density, run.log_floor)
    target = critic.bellman_target(rows.reward, after.discount, adjusted, after.bonus)
    (loss, shift), lesson = jax.value_and_grad(targeted.loss, has_aux=True)(
        state.epsilon.value, value, rows.action, rows.log_density, run.log_floor, target
    )
    if isinstance(state.epsilon, Solved):
        discounts = after.discount[None] * jax.nn.one_hot(jnp.argmin(adjusted, axis=0), 2, axis=0)
        residual = rows.reward + after.discount * after.bonus + jnp.sum(discounts * next_value, axis=0)
        answers = (rows.action, rows.log_density), (after.action, after.log_density)
        lesson = targeted.see(state.epsilon.value.degree, *answers, residual[None] - value, discounts, run.log_floor)
    return lesson, loss, jnp.mean(jnp.abs(shift))


def learn(epsilon: Learner[MLP] | Solved, lesson: Any, run: Run, agent: Agent) -> Learner[MLP] | Solved:
    """One step of the correction."""
    if isinstance(epsilon, Solved):
        return targeted.observe(epsilon, lesson, agent.epsilon_decay)
    return descend(epsilon, jax.tree.map(lambda g: run.beta * g, lesson), run.targeted_rate)


def update_actor(noise: Noise, state: State, rows: Transition, run: Run) -> tuple[State, dict[str, Float[Array, ""]]]:
    """Ascend the adjusted critic (Eq. 21, reparameterised) plus entropy, and steer the temperature."""
    temperature = jnp.exp(state.log_temperature.value)

    def loss(actor: MLP) -> tuple[Float[Array, ""], Float[Array, ""]]:
        action, log_density = policy.respond(noise.action, actor, rows.observation)
        adjusted = targeted.adjust(
            None if state.epsilon is None else state.epsilon.value,
            critic.values(state.critics.value, rows.observation, action),
            action,
            jax.lax.stop_gradient(log_density),
            run.log_floor,
        )
        least = jnp.minimum(*adjusted)  # jnp.min's gradient divides by how many equal it: none, if rounded elsewhere
        return jnp.mean(temperature * log_density - least), -jnp.mean(log_density)

    (actor_loss, entropy), gradient = jax.value_and_grad(loss, has_aux=True)(state.actor.value)
    entropy, gradient = devices.mean((entropy, gradient))
    actor = descend(state.actor, gradient, run.agent_rate)
    log_temperature = descend(state.log_temperature, entropy - run.target_entropy, run.agent_rate)
    state = eqx.tree_at(lambda s: (s.actor, s.log_temperature), state, (actor, log_temperature))
    return state, {"actor_loss": actor_loss, "entropy": entropy, "temperature": temperature}


def learner(value: Trained) -> Learner[Trained]:
    """A thing about to be trained."""
    return Learner(value, adam.init(value))


def descend(learner: Learner[Trained], gradient: Any, rate: Float[Array, ""]) -> Learner[Trained]:
    """One step of Adam."""
    return Learner(*adam.descend(learner.value, learner.moments, gradient, rate))


def follow(slow: Any, fast: Any, polyak: float) -> Any:
    """Polyak averaging."""
    return jax.tree.map(lambda s, f: s + polyak * (f - s), slow, fast)
