"""PPO and SLBO: the baselines that throw their data away or never leave the model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import linear, problem

from iadd_tr.algorithm import ppo, slbo
from iadd_tr.evaluate import Evaluator
from iadd_tr.experiment import Batch
from iadd_tr.shell import checkpoint
from iadd_tr.training import Start, train

PPO = {"rollout_steps": 40, "environments": 2, "minibatches": 4, "passes": 2, "ppo_hidden": 8}
SLBO = {
    "stage_steps": 20, "rounds": 2, "model_updates": 4, "policy_updates": 2, "virtual_steps": 40, "starts": 6,
    "virtual_environments": 2, "model_width": 16, "model_batch": 8, "value_batch": 8, "value_passes": 1,
}  # fmt: skip
TINY = {"ppo": PPO, "slbo": SLBO}


def numbers(line: dict) -> dict:
    return {name: value for name, value in line.items() if isinstance(value, float)}


@pytest.mark.parametrize("algo", ["ppo", "slbo"])
def test_a_batch_gives_each_run_what_it_gets_alone(algo):
    together = list(train(problem("probe:drift", algo, runs=2, seed=3, **TINY[algo])))[-1]
    alone = list(train(problem("probe:drift", algo, runs=1, seed=4, **TINY[algo])))[-1]
    ours, theirs = numbers(together.metrics[1]), numbers(alone.metrics[0])
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert ours[name] == pytest.approx(theirs[name], rel=2e-3, abs=2e-4), name
    assert numbers(together.metrics[0]) != ours


@pytest.mark.parametrize("algo", ["ppo", "slbo"])
def test_a_checkpoint_brings_everything_back(algo, tmp_path):
    """The normalisers too: the epoch after it is number for number that of a run that never stopped."""
    setting = problem("probe:drift", algo, epochs=3, **TINY[algo])
    epochs = train(setting)
    next(epochs)
    second = next(epochs)
    checkpoint.save(tmp_path, "same", 2, second.state, second.places)
    third = next(epochs)
    batch = Batch(setting)
    module = {"ppo": ppo, "slbo": slbo}[algo]
    template = jax.eval_shape(batch.program(module.INIT), batch.runs[None])[0]
    start = checkpoint.load(tmp_path, "same", template, len(batch.host.seeds))
    assert isinstance(start, Start)
    (again,) = train(setting, start)
    assert numbers(again.metrics[0]) == numbers(third.metrics[0])
    scale = ppo.acting(again.state).scale if algo == "ppo" else slbo.acting(again.state).scale
    assert float(scale.count[0]) > 30


def test_the_budget_counts_the_steps_of_all_environments():
    batch = Batch(problem("probe:drift", "ppo", **PPO))
    taken = []
    batch.on_step = lambda: taken.append(len(batch.host.seeds))
    ppo.epoch(batch, ppo.begin(batch), 0)
    assert sum(taken) == 20
    assert batch.observations.shape == (1, 2, 1)
    assert not np.array_equal(batch.host.observations[0], batch.host.observations[1])


def test_the_normaliser_has_seen_every_observation():
    batch = Batch(problem("probe:drift", "ppo", **PPO))
    state = ppo.epoch(batch, ppo.begin(batch), 0)
    assert float(state.normalisers.observation.count[0]) == pytest.approx(20, abs=0.01)


def test_rewards_are_scaled_by_the_deviation_of_their_sums():
    setting = problem("probe:drift", "ppo", **PPO)
    batch = Batch(setting)
    state = ppo.begin(batch)
    sums, seen, expected, stored = np.zeros(2), [], [], []
    for step in range(0, 20, 2):
        choice = batch(ppo.ACT, step, ppo.acting(state), batch.observations)
        outcome = batch.execute(choice)()
        sums = 0.99 * sums + outcome.reward[0]
        seen += sums.tolist()
        expected.append(outcome.reward[0] / np.sqrt(np.var(seen) + 1e-8))
        sums = np.where(outcome.last[0], 0.0, sums)
        state = batch(ppo.STORE, step, state, choice, outcome)
        stored.append(np.asarray(state.trajectory.reward[0, step // 2]))
    np.testing.assert_allclose(stored[2:], np.clip(expected, -10, 10)[2:], rtol=2e-2)


def test_the_rate_falls_to_zero_with_the_budget():
    setting = problem("probe:drift", "ppo", epochs=2, **PPO)
    batch = Batch(setting)
    state = ppo.epoch(batch, ppo.begin(batch), 0)
    before = np.asarray(state.agent.networks.critic.layers[0].weight)
    after = batch(ppo.IMPROVE, 40, state)
    np.testing.assert_array_equal(after.agent.networks.critic.layers[0].weight, before)


def best_and_idle(setting, epoch: int) -> tuple[float, float]:
    evaluator = Evaluator(setting.task, [1], 8)
    best = evaluator.play([linear(-4.5)], epoch).returned.mean()
    return best, evaluator.play([linear(0.0)], epoch).returned.mean()


@pytest.mark.parametrize("algo", ["ppo", "slbo"])
def test_drift_is_solved(algo):
    own = {
        "ppo": {"rollout_steps": 400, "environments": 4, "minibatches": 8, "ppo_rate": 3e-3, "epochs": 12},
        "slbo": {
            "stage_steps": 400, "rounds": 4, "model_updates": 60, "policy_updates": 12, "virtual_steps": 400,
            "starts": 50, "virtual_environments": 20, "model_width": 32, "epochs": 3, "value_batch": 64,
        },
    }  # fmt: skip
    setting = problem(
        "probe:drift", algo, epoch_length=400, fit_every=400, evaluation_episodes=8, gamma=0.9, **own[algo]
    )
    last = list(train(setting))[-1]
    best, idle = best_and_idle(setting, last.number)
    assert last.metrics[0]["return"] > best - 0.2 * (best - idle)


def test_ppo_values_on_the_bandit_are_its_rewards():
    """One step, reward -(a - s/2)^2: the value of a state is -(sigma^2 + (mean - s/2)^2)."""
    setting = problem(
        "probe:bandit",
        "ppo",
        epoch_length=400,
        fit_every=400,
        epochs=10,
        rollout_steps=200,
        minibatches=4,
        ppo_rate=3e-3,
    )
    last = list(train(setting))[-1]
    state = jax.tree.map(lambda x: x[0], last.state)
    seen = jnp.linspace(-0.9, 0.9, 13)[:, None]
    policy = ppo.acting(state)
    scaled = ppo.normaliser.standardise(policy.scale, seen)
    mean, deviation = (
        np.asarray(policy.networks.policy.actor(scaled)),
        float(jnp.exp(policy.networks.policy.log_std[0])),
    )
    drawn = np.clip(mean + deviation * np.random.default_rng(0).normal(size=(13, 4000)), -1.0, 1.0)
    expected = -np.mean((drawn - 0.5 * np.asarray(seen)) ** 2, axis=1)
    value = ppo.ppo.values(policy.networks, scaled) * jnp.sqrt(state.normalisers.earned.variance)
    np.testing.assert_allclose(value, expected, atol=0.08)
