from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr import devices, products
from iadd_tr.agent import critic, policy, sac, targeted
from iadd_tr.runs import rows, traced
from iadd_tr.settings import Agent, Settings
from iadd_tr.types import Transition

AGENT = Agent(hidden=16, batch=32, epsilon_hidden=8)
OBSERVATIONS, ACTIONS = 3, 2
update = jax.jit(sac.update, static_argnames="agent")


def run_with(beta: float, floor: float = 1.0, agent: Agent = AGENT):
    settings = Settings(betas=(beta,), floors=(floor,), agent=agent)
    return jax.tree.map(lambda x: x[0], traced(settings, rows(settings)))


def batch(seed: int, count: int = AGENT.batch) -> Transition:
    keys = jax.random.split(jax.random.key(seed), 6)
    return Transition(
        observation=jax.random.normal(keys[0], (count, OBSERVATIONS)),
        action=jnp.tanh(jax.random.normal(keys[1], (count, ACTIONS))),
        log_density=jax.random.normal(keys[2], (count,)),
        reward=jax.random.normal(keys[3], (count,)),
        next_observation=jax.random.normal(keys[4], (count, OBSERVATIONS)),
        discount=jax.random.bernoulli(keys[5], 0.8, (count,)).astype(jnp.float32),
    )


def noise(seed: int, count: int = AGENT.batch) -> sac.Noise:
    first, second = jax.random.split(jax.random.key(seed))
    return sac.Noise(jax.random.normal(first, (count, ACTIONS)), jax.random.normal(second, (count, ACTIONS)))


def fresh(with_targeting: bool = True) -> sac.State:
    """An agent with all its networks off their starting point: targets differ from what they follow."""
    state = sac.init(jax.random.key(0), OBSERVATIONS, ACTIONS, AGENT, with_targeting)
    for i, run in enumerate([run_with(1.0, agent=replace(AGENT, epsilon_rate=0.03))] * 3):
        state, _ = update(noise(10 + i), state, batch(20 + i), run, AGENT)
    return state


def forward(net, x: np.ndarray, twin: int | None = None) -> np.ndarray:
    """A network in plain NumPy."""
    for i, layer in enumerate(net.layers):
        weight, bias = (np.asarray(p if twin is None else p[twin], np.float64) for p in (layer.weight, layer.bias))
        x = x @ weight + bias
        x = np.maximum(x, 0.0) if i + 1 < len(net.layers) else x
    return x


def plain_losses(state: sac.State, rows: Transition, noise: sac.Noise, floor: float) -> tuple[float, float]:
    """Eqs. 11, 12, 18 and 19 written out for one batch."""
    mean, log_std = np.split(forward(state.actor.value, np.asarray(rows.next_observation)), 2, axis=-1)
    latent = mean + np.exp(log_std) * np.asarray(noise.next_action)
    action = np.tanh(latent)
    log_density = (-0.5 * np.asarray(noise.next_action) ** 2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
    log_density -= np.log1p(-(action**2)).sum(-1)
    bonus = -np.exp(float(state.log_temperature.value)) * log_density
    after = np.concatenate([rows.next_observation, action], -1)
    now = np.concatenate([rows.observation, rows.action], -1)
    q_after = np.stack([forward(state.slow_critics, after, i)[:, 0] for i in (0, 1)])
    q_now = np.stack([forward(state.critics.value, now, i)[:, 0] for i in (0, 1)])
    shift_after = np.stack([forward(state.slow_epsilon, action, i)[:, 0] for i in (0, 1)])
    shift_after /= np.maximum(np.exp(log_density), floor)
    shift_now = np.stack([forward(state.epsilon.value, np.asarray(rows.action), i)[:, 0] for i in (0, 1)])
    shift_now /= np.maximum(np.exp(np.asarray(rows.log_density)), floor)
    discount = AGENT.gamma * np.asarray(rows.discount)
    target = np.asarray(rows.reward) + discount * (q_after.min(0) + bonus)
    adjusted = np.asarray(rows.reward) + discount * ((q_after + shift_after).min(0) + bonus)
    td = 0.5 * ((q_now - target) ** 2).mean(1).sum()
    tr = ((q_now + shift_now - adjusted) ** 2).mean(1).sum()
    return td, tr


@pytest.mark.parametrize("floor", [0.1, 1.0])
def test_both_losses_agree_with_a_plain_computation(floor):
    state, rows_, noise_ = fresh(), batch(1), noise(2)
    _, info = update(noise_, state, rows_, run_with(1.0, floor), AGENT)
    td, tr = plain_losses(state, rows_, noise_, floor)
    assert float(info.critic_loss) == pytest.approx(td, rel=1e-4)
    assert float(info.targeted_loss) == pytest.approx(tr, rel=1e-4)
    assert float(info.correction) > 1e-3
    assert float(info.floored) == pytest.approx(float(jnp.mean(jnp.exp(rows_.log_density) < floor)))


def test_the_critics_do_not_see_beta():
    """Eq. 19 is fitted with the critic fixed."""
    state = fresh()
    without, _ = update(noise(2), state, batch(1), run_with(0.0), AGENT)
    with_beta, _ = update(noise(2), state, batch(1), run_with(7.0), AGENT)
    assert eqx.tree_equal(without.critics, with_beta.critics)
    assert not eqx.tree_equal(without.epsilon, with_beta.epsilon)


def test_beta_zero_is_plain_sac_number_for_number():
    with_epsilon = sac.init(jax.random.key(0), OBSERVATIONS, ACTIONS, AGENT, True)
    plain = eqx.tree_at(lambda s: (s.epsilon, s.slow_epsilon), with_epsilon, (None, None))
    for i in range(5):
        with_epsilon, _ = update(noise(i), with_epsilon, batch(i), run_with(0.0), AGENT)
        plain, _ = update(noise(i), plain, batch(i), run_with(0.0), AGENT)
    for ours, theirs in zip(jax.tree.leaves(plain.actor), jax.tree.leaves(with_epsilon.actor), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert all(float(jnp.abs(x).max()) == 0.0 for x in jax.tree.leaves(with_epsilon.epsilon.value.layers[-1]))


def test_the_actor_follows_the_adjusted_critic_with_its_density_held():
    state, rows_, noise_ = fresh(), batch(1), noise(2)
    run = run_with(1.0, floor=0.1)
    _, density = policy.respond(noise_.action, state.actor.value, rows_.observation)

    def loss(actor):
        action, log_density = policy.respond(noise_.action, actor, rows_.observation)
        values = critic.values(state.critics.value, rows_.observation, action)
        epsilon = jax.vmap(lambda net: net(action)[:, 0])(state.epsilon.value)
        adjusted = values + epsilon / jnp.maximum(jnp.exp(density), 0.1)[None]
        return jnp.mean(jnp.exp(state.log_temperature.value) * log_density - adjusted.min(0))

    gradient = jax.grad(loss)(state.actor.value)
    expected = sac.descend(state.actor, gradient, run.agent_rate).value
    ours = sac.update_actor(noise_, state, rows_, run)[0].actor.value
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_the_temperature_falls_when_entropy_is_above_its_target():
    state, rows_ = fresh(), batch(1)
    before = float(state.log_temperature.value)
    low = eqx.tree_at(lambda r: r.target_entropy, run_with(0.0), jnp.array(-50.0))
    high = eqx.tree_at(lambda r: r.target_entropy, run_with(0.0), jnp.array(50.0))
    assert float(update(noise(2), fresh(), rows_, low, AGENT)[0].log_temperature.value) < before
    assert float(update(noise(2), fresh(), rows_, high, AGENT)[0].log_temperature.value) > before


def test_targets_follow_slowly():
    state = fresh()
    after, _ = update(noise(2), state, batch(1), run_with(1.0), AGENT)
    for slow, old, new in zip(
        jax.tree.leaves((after.slow_critics, after.slow_epsilon)),
        jax.tree.leaves((state.slow_critics, state.slow_epsilon)),
        jax.tree.leaves((after.critics.value, after.epsilon.value)),
        strict=True,
    ):
        np.testing.assert_allclose(slow, 0.995 * old + 0.005 * new, rtol=1e-4, atol=1e-6)


def test_twins_and_their_corrections_are_two_networks_each():
    state = fresh()
    values = critic.values(state.critics.value, batch(1).observation, batch(1).action)
    shift = targeted.correction(state.epsilon.value, batch(1).action, batch(1).log_density, jnp.array(0.0))
    assert not np.allclose(values[0], values[1])
    assert not np.allclose(shift[0], shift[1])


def test_improving_on_several_batches_is_updating_one_after_another():
    state, run = fresh(), run_with(1.0)
    rows_ = jax.tree.map(lambda *x: jnp.stack(x), *[batch(i) for i in range(3)])
    ours, info = sac.improve(state, sac.with_noise(jax.random.key(5), rows_), run, AGENT)
    next_key, key = jax.random.split(jax.random.key(5))
    draws = [jax.random.normal(k, rows_.action.shape) for k in (next_key, key)]
    for i in range(3):
        state, last = update(sac.Noise(draws[0][i], draws[1][i]), state, batch(i), run, AGENT)
    assert float(info.critic_loss) == pytest.approx(float(last.critic_loss), rel=1e-4)
    np.testing.assert_allclose(
        ours.actor.value.layers[0].weight, state.actor.value.layers[0].weight, rtol=1e-4, atol=1e-6
    )


def test_updates_with_rounded_factors_are_those_in_single_precision_up_to_rounding(monkeypatch):
    """Adam's first moments are sums of gradients; what is trained multiplies afterwards as it did before."""
    rows_ = jax.tree.map(lambda *x: jnp.stack(x), *[batch(i) for i in range(3)])
    minibatches = sac.with_noise(jax.random.key(5), rows_)

    def improved(halves: bool) -> tuple[sac.State, sac.Info]:
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: halves)
        return jax.jit(lambda state: sac.improve(state, minibatches, run_with(1.0), AGENT))(fresh())

    single, said = improved(False)
    monkeypatch.setattr(products, "WIDE", 1)
    half, info = improved(True)
    assert jax.tree.structure(half) == jax.tree.structure(single) == jax.tree.structure(fresh())
    for part in ("actor", "critics", "epsilon"):
        slopes, exact = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(getattr(state, part).moments.mu)])
            for state in (half, single)
        )
        assert 1e-4 < np.linalg.norm(slopes - exact) / np.linalg.norm(exact) < 0.03
    assert float(info.critic_loss) == pytest.approx(float(said.critic_loss), rel=0.02)
