"""PPO, the on-policy baseline: act, and improve whenever a trajectory is full."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from iadd_tr import evaluate, normaliser
from iadd_tr.agent import gaussian_policy, ppo
from iadd_tr.agent.ppo import Trajectory
from iadd_tr.algorithm import collect
from iadd_tr.experiment import Batch
from iadd_tr.normaliser import Moments
from iadd_tr.stage import Problem, Stage
from iadd_tr.tasks.envs import Reflex
from iadd_tr.types import Run, Step


class Normalisers(eqx.Module):
    """Scales of observations and of rewards; the latter by the deviation of their discounted sums."""

    observation: Moments
    earned: Moments
    sums: Float[Array, " N"]


class Choice(eqx.Module):
    """Actions about to be executed, what was drawn before clipping, its density, and the values there."""

    action: Float[Array, "N A"]
    drawn: Float[Array, "N A"]
    log_density: Float[Array, " N"]
    value: Float[Array, " N"]


class Policy(eqx.Module):
    """What acting needs."""

    networks: ppo.Networks
    scale: Moments


class State(eqx.Module):
    agent: ppo.State
    normalisers: Normalisers
    trajectory: Trajectory


def epoch(batch: Batch, state: State, number: int) -> State:
    """One epoch: act in all environments; a full trajectory improves the agent and is forgotten."""
    settings = batch.problem.settings.ppo
    for step in batch.steps(number):
        choice = batch(ACT, step, acting(state), batch.observations)
        state = batch(STORE, step, state, choice, batch.execute(choice)())
        if (step + settings.environments) % settings.rollout_steps == 0:
            state = batch(IMPROVE, step, state)
    return state


def begin(batch: Batch) -> State:
    """Nothing to warm up."""
    return batch(INIT)


def go_on(batch: Batch, state: State) -> State:
    """Nothing depends on how many epochs are asked for but the rate."""
    del batch
    return state


def acting(state: State) -> Policy:
    """The policy with its normaliser."""
    return Policy(state.agent.networks, state.normalisers.observation)


def reflexes(state: State) -> list[Reflex]:
    """The deterministic policies of evaluation: the mean, clipped."""
    nets = state.agent.networks.policy.actor
    return evaluate.reflexes(nets, nets.layers[-1].bias.shape[-1], "clip", state.normalisers.observation)


def init(problem: Problem, run: Run) -> tuple[State, None]:
    """Fresh networks and an empty trajectory."""
    task, settings = problem.task, problem.settings.ppo
    count, length = settings.environments, settings.rollout_steps // settings.environments
    grid = jnp.zeros((length, count))
    seen = jnp.zeros((length, count, task.observations))
    trajectory = Trajectory(seen, jnp.zeros((length, count, task.actions)), grid, grid, grid, seen, grid, grid > 0)
    scales = Normalisers(normaliser.init(task.observations), normaliser.init(), jnp.zeros(count))
    return State(ppo.init(run.at(0, 0), task.observations, task.actions, settings), scales, trajectory), None


def act(
    problem: Problem, step: Int[Array, ""], run: Run, policy: Policy, observation: Float[Array, "N O"]
) -> tuple[Choice, None]:
    """A draw of the Gaussian policy, clipped to the task's bounds."""
    del problem
    seen = normaliser.standardise(policy.scale, observation)
    drawn = gaussian_policy.sample(run.at(2, step), policy.networks.policy, seen)
    density = gaussian_policy.log_density(policy.networks.policy, seen, drawn)
    return Choice(jnp.clip(drawn, -1.0, 1.0), drawn, density, ppo.values(policy.networks, seen)), None


def store(
    problem: Problem, step: Int[Array, ""], run: Run, state: State, choice: Choice, outcome: Step
) -> tuple[State, None]:
    """Write a step into the trajectory, and let the normalisers see it."""
    del run
    scales, settings = state.normalisers, problem.settings
    sums = settings.agent.gamma * scales.sums + outcome.reward
    earned = normaliser.update(scales.earned, sums)
    reward = jnp.clip(outcome.reward / normaliser.deviation(earned.variance), -10.0, 10.0)
    row = Trajectory(
        normaliser.standardise(scales.observation, outcome.observation), choice.drawn, choice.log_density, choice.value,
        reward, normaliser.standardise(scales.observation, outcome.next_observation), outcome.discount, outcome.last,
    )  # fmt: skip
    place = step % settings.ppo.rollout_steps // settings.ppo.environments
    trajectory = jax.tree.map(lambda old, new: old.at[place].set(new), state.trajectory, row)
    seen = normaliser.update(scales.observation, outcome.next_observation)
    scales = Normalisers(seen, earned, jnp.where(outcome.last, 0.0, sums))
    return State(state.agent, scales, trajectory), None


def improve(problem: Problem, step: Int[Array, ""], run: Run, state: State) -> tuple[State, ppo.Info]:
    """Improve on a full trajectory, at a rate that falls to zero with the budget."""
    loop, settings = problem.settings.loop, problem.settings.ppo
    rate = settings.ppo_rate * (1.0 - step / (loop.epochs * loop.epoch_length))
    agent, info = ppo.improve(
        run.at(5, step), state.agent, state.trajectory, rate, problem.settings.agent.gamma, settings
    )
    return dataclasses.replace(state, agent=agent), info


INIT = Stage("init", init)
ACT = Stage("act", act, shared=1)
STORE = Stage("act", store, shared=1, donate=(0,), wait=False)
IMPROVE = Stage("update", improve, shared=1, donate=(0,))
look_ahead = collect.look_ahead
