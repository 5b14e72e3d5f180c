"""SLBO's model: a deterministic network for the normalised state difference, fitted over several steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from iadd_tr import adam, normaliser, replay
from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp
from iadd_tr.normaliser import Moments
from iadd_tr.replay import Replay
from iadd_tr.settings import Slbo
from iadd_tr.types import PRNGKey, Transition


class Model(eqx.Module):
    net: MLP
    moments: optax.OptState
    state: Moments
    difference: Moments
    reward: Moments


class Guess(eqx.Module):
    """What the model says of a step."""

    difference: Float[Array, "B O"]  # normalised
    reward: Float[Array, " B"]  # normalised
    end_logit: Float[Array, " B"]


def init(key: PRNGKey, observations: int, actions: int, slbo: Slbo) -> Model:
    """A fresh network; scales are those of the data once there is some."""
    sizes = [observations + actions, slbo.model_width, slbo.model_width, observations + 2]
    net = mlp(key, sizes, jax.nn.relu, GLOROT_UNIFORM)
    scales = (normaliser.init(observations), normaliser.init(observations), normaliser.init())
    return Model(net, adam.init(net), *scales)


def rescale(model: Model, buffer: Replay) -> Model:
    """The same network with the scales of all rows collected so far."""
    live = replay.live(buffer)

    def moments(value: Float[Array, "C D"]) -> Moments:
        mean, deviation = replay.moments(value, live)
        return Moments(mean, deviation**2, buffer.size.astype(jnp.float32))

    reward = jax.tree.map(lambda x: x.reshape(-1)[0], moments(buffer.rows.reward[:, None]))
    difference = moments(buffer.rows.next_observation - buffer.rows.observation)
    return Model(model.net, model.moments, moments(buffer.rows.observation), difference, reward)


def guess(net: MLP, model: Model, state: Float[Array, "B O"], action: Float[Array, "B A"]) -> Guess:
    """The network's answer in its own units."""
    output = net(jnp.concatenate([normaliser.standardise(model.state, state), jnp.clip(action, -1.0, 1.0)], axis=-1))
    return Guess(output[:, :-2], output[:, -2], output[:, -1])


def move(model: Model, state: Float[Array, "B O"], answer: Guess) -> Float[Array, "B O"]:
    """The next state that an answer leads to."""
    deviation = jnp.sqrt(model.difference.variance)[None]
    return state + model.difference.mean[None] + deviation * answer.difference


def reward_of(model: Model, answer: Guess) -> Float[Array, " B"]:
    """The reward in the task's units."""
    return model.reward.mean + jnp.sqrt(model.reward.variance) * answer.reward


def fit(key: PRNGKey, model: Model, buffer: Replay, slbo: Slbo) -> tuple[Model, Float[Array, ""]]:
    """Some steps of Adam on windows of consecutive rows, and the mean loss."""

    def step(carry: tuple[MLP, optax.OptState], key: PRNGKey):
        net, moments = carry
        windows, live = draw_windows(key, buffer, slbo.model_batch, slbo.model_horizon)
        value, gradient = jax.value_and_grad(loss)(net, model, windows, live, slbo.weight_penalty)
        gradient = adam.clip_norm(gradient, slbo.model_norm)
        return adam.descend(net, moments, gradient, jnp.array(slbo.slbo_rate)), value

    carry, losses = jax.lax.scan(step, (model.net, model.moments), jax.random.split(key, slbo.model_updates))
    return Model(*carry, model.state, model.difference, model.reward), jnp.mean(losses)


def draw_windows(key: PRNGKey, buffer: Replay, count: int, horizon: int) -> tuple[Transition, Bool[Array, "B H"]]:
    """Rows that follow each other, [B, H], and which of them still belong to the first one's episode."""
    start = jax.random.randint(key, (count,), 0, jnp.maximum(buffer.size - horizon + 1, 1))
    windows = replay.take(buffer.rows, start[:, None] + jnp.arange(horizon)[None])
    joined = jnp.all(windows.next_observation[:, :-1] == windows.observation[:, 1:], axis=-1)
    first = jnp.ones((count, 1), bool)
    return windows, jnp.concatenate([first, jnp.cumprod(joined, axis=1).astype(bool)], axis=1)


def loss(net: MLP, model: Model, windows: Transition, live: Bool[Array, "B H"], penalty: float) -> Float[Array, ""]:
    """Mean length, not squared, of the errors in normalised differences along predicted states; reward and end too."""
    state, total, weight = windows.observation[:, 0], jnp.zeros(()), jnp.where(live, 1.0, 0.0)
    deviation = jnp.sqrt(model.difference.variance)[None]
    for i in range(live.shape[1]):
        rows = jax.tree.map(lambda x, i=i: x[:, i], windows)
        answer = guess(net, model, state, rows.action)
        target = (rows.next_observation - rows.observation - model.difference.mean[None]) / deviation
        reward = (rows.reward - model.reward.mean) / jnp.sqrt(model.reward.variance)
        error = length(answer.difference - target) + jnp.abs(answer.reward - reward)
        end = optax.sigmoid_binary_cross_entropy(answer.end_logit, 1.0 - rows.discount)
        total = total + jnp.sum(weight[:, i] * (error + end))
        state = move(model, state, answer)
    squares = sum(jnp.sum(layer.weight**2) for layer in net.layers)
    return total / jnp.sum(weight) + penalty * squares


def length(vector: Float[Array, "B O"]) -> Float[Array, " B"]:
    """Euclidean, with a gradient at zero."""
    return jnp.sqrt(jnp.sum(vector**2, axis=-1) + 1e-12)


def ends(key: PRNGKey, answer: Guess) -> Bool[Array, " B"]:
    """A draw of the learned end."""
    return jax.random.bernoulli(key, jax.nn.sigmoid(answer.end_logit))
