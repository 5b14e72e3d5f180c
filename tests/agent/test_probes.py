"""Values and policies on tasks whose answers are known, without the correction and with it, by gradient and solved."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.agent import critic, policy, sac, targeted
from iadd_tr.gaussian import uniform_log_density
from iadd_tr.runs import rows, traced
from iadd_tr.settings import Agent, Settings
from iadd_tr.types import Transition

AGENT = Agent(hidden=32, batch=128, gamma=0.8, polyak=0.02, agent_rate=1e-3, target_entropy=-1.5, epsilon_hidden=16)
SETTINGS = Settings(betas=(0.0, 1.0), agent=AGENT)
KINDS = ["without", "gradient", "solve"]
STEPS = 20  # updates between two solutions


def bandit(key) -> Transition:
    """Reward -(a - s/2)^2 and an end, at uniform states and actions."""
    state, action = jax.random.uniform(key, (2, AGENT.batch, 1), minval=-1.0, maxval=1.0)
    reward = -((action - 0.5 * state)[:, 0] ** 2)
    density = jnp.full(AGENT.batch, uniform_log_density(1))
    return Transition(state, action, density, reward, state, jnp.zeros(AGENT.batch))


def drift(key) -> Transition:
    """s' = 0.9 s + 0.2 a, reward -s'^2, no end."""
    state, action = jax.random.uniform(key, (2, AGENT.batch, 1), minval=-1.0, maxval=1.0)
    after = 0.9 * state + 0.2 * action
    density = jnp.full(AGENT.batch, uniform_log_density(1))
    return Transition(state, action, density, -(after[:, 0] ** 2), after, jnp.ones(AGENT.batch))


def train(draw, updates: int) -> dict[str, sac.State]:
    """An agent of each kind; those without the correction and with one fitted by gradient are one batch."""

    def train_all(settings: Settings) -> sac.State:
        @jax.jit
        @jax.vmap
        def one(run):
            def improve(state, key):
                data = jax.vmap(draw)(jax.random.split(key, STEPS))
                return sac.improve(state, sac.with_noise(key, data), run, settings.agent)[0], None

            state = sac.init(jax.random.key(0), 1, 1, settings.agent, True)
            return jax.lax.scan(improve, state, jax.random.split(jax.random.key(1), updates // STEPS))[0]

        return one(traced(settings, rows(settings)))

    both = train_all(SETTINGS)
    solved = train_all(replace(SETTINGS, betas=(1.0,), agent=replace(AGENT, targeting="solve")))
    return dict(zip(KINDS, (agent(both, 0), agent(both, 1), agent(solved, 0)), strict=True))


def agent(state: sac.State, index: int) -> sac.State:
    return jax.tree.map(lambda x: x[index], state)


def adjusted_values(state: sac.State, observation, action) -> np.ndarray:
    """Both twins at uniformly drawn actions, corrected."""
    values = critic.values(state.critics.value, observation, action)
    density = jnp.full(observation.shape[0], uniform_log_density(1))
    return np.asarray(targeted.adjust(state.epsilon.value, values, action, density, jnp.zeros(())))


@pytest.fixture(scope="module")
def bandits() -> dict[str, sac.State]:
    return train(bandit, 2500)


@pytest.fixture(scope="module")
def drifters() -> dict[str, sac.State]:
    return train(drift, 3000)


@pytest.mark.parametrize("kind", KINDS)
def test_bandit_values_are_the_rewards(bandits, kind):
    rows_ = bandit(jax.random.key(7))
    values = adjusted_values(bandits[kind], rows_.observation, rows_.action)
    assert np.abs(values - np.asarray(rows_.reward)[None]).max() < 0.1
    assert np.abs(values - np.asarray(rows_.reward)[None]).mean() < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_bandit_policy_takes_half_the_state(bandits, kind):
    state = jnp.linspace(-0.9, 0.9, 19)[:, None]
    action = jnp.tanh(policy.distribution(bandits[kind].actor.value, state)[0])
    np.testing.assert_allclose(action, 0.5 * state, atol=0.08)


@pytest.mark.parametrize("kind", KINDS)
def test_drift_values_are_the_soft_returns_of_the_policy(drifters, kind):
    """Against a simulation of the learned policy in the true dynamics, entropy bonus included."""
    learned = drifters[kind]
    start = jnp.linspace(-0.8, 0.8, 5)
    first = jnp.array([-0.5, 0.5, 0.0, 0.3, -0.3])
    state = jnp.repeat(start, 400)[:, None]
    action, bonus = jnp.repeat(first, 400)[:, None], jnp.zeros(2000)
    temperature, total = jnp.exp(learned.log_temperature.value), np.zeros(2000)
    for step in range(40):
        state = 0.9 * state + 0.2 * action
        total += AGENT.gamma**step * np.asarray(bonus - state[:, 0] ** 2)
        action, log_density = policy.sample(jax.random.key(step), learned.actor.value, state)
        bonus = -temperature * log_density
    values = adjusted_values(learned, start[:, None], first[:, None])
    np.testing.assert_allclose(values.mean(0), total.reshape(5, 400).mean(1), atol=0.06)


@pytest.mark.parametrize("kind", KINDS)
def test_drift_policy_pushes_towards_zero(drifters, kind):
    state = jnp.array([-0.9, -0.5, 0.5, 0.9])[:, None]
    action = jnp.tanh(policy.distribution(drifters[kind].actor.value, state)[0])
    assert np.all(np.sign(action) == -np.sign(state))
    assert np.all(np.abs(action[jnp.array([0, 3])]) > 0.8)


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_run_with_beta_has_a_correction(drifters, kind):
    rows_ = drift(jax.random.key(3))
    epsilon = drifters[kind].epsilon.value
    shift = np.asarray(targeted.correction(epsilon, rows_.action, rows_.log_density, jnp.zeros(())))
    assert np.all(shift == 0.0) if kind == "without" else np.all(shift != 0.0)
