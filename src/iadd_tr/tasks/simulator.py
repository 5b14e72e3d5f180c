"""Thousands of copies of one MuJoCo task, restored to visited states and stepped at once on all cores.

A state is MuJoCo's full physics state (time, positions, velocities). An observation is less: it leaves out the position
along the track, which nothing depends on, and Hopper and Walker2d clip its velocities to [-10, 10], so states cannot
be told from a replay's observations alone: record `states` of the environments while they collect, or `retrace` them
from the seeded resets and the replay's actions.
"""
# pyright: reportAttributeAccessIssue=false

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import mujoco
import numpy as np
from jaxtyping import Bool, Float, Int
from mujoco.rollout import Rollout

from iadd_tr.tasks.envs import episode_seed, rescale
from iadd_tr.tasks.host import TRAINING
from iadd_tr.tasks.task import Task, TaskError
from iadd_tr.types import Step, Transition

PHYSICS = mujoco.mjtState.mjSTATE_FULLPHYSICS
CLOCK = 1  # numbers before the positions in a state
GROUP = 64  # episodes retraced at once


@dataclass(frozen=True)
class Rewards:
    """A runner's reward is its speed, plus `upright` in every state that is no end, less a cost of its control."""

    control: float
    upright: float = 0.0
    speed_limit: float = np.inf
    """Velocities are clipped to it in the observation."""


RUNNERS = {
    "hopper": Rewards(control=1e-3, upright=1.0, speed_limit=10.0),
    "walker2d": Rewards(control=1e-3, upright=1.0, speed_limit=10.0),
    "halfcheetah": Rewards(control=0.1),
}

Act = Callable[[int, Float[np.ndarray, "B O"]], Float[np.ndarray, "B A"]]
"""Actions at the observations of step t; it is called with few different B."""


class Trail(eqx.Module):
    """A policy's steps on B copies: a copy that has ended takes no more, and its rows from then on are zero."""

    observation: Float[np.ndarray, "H B O"]
    action: Float[np.ndarray, "H B A"]
    reward: Float[np.ndarray, "H B"]
    live: Bool[np.ndarray, "H B"]  # the copy took this step
    states: Float[np.ndarray, "B S"]  # where each copy stands or ended


class Simulator:
    """One task's physics and a thread for each core."""

    def __init__(self, task: Task, threads: int | None = None):
        if task.name not in RUNNERS or task.ending is None:
            raise TaskError(f"Task '{task.name}' cannot be restored to a state; take one of {', '.join(RUNNERS)}.")
        env: Any = task.make().unwrapped
        self.task, self.rewards = task, RUNNERS[task.name]
        self.model, self.frame_skip, self.seconds = env.model, env.frame_skip, env.dt
        env.close()
        threads = threads or multiprocessing.cpu_count()
        self.scratch = [mujoco.MjData(self.model) for _ in range(threads)]
        self.pool = Rollout(nthread=threads)
        self.ending = jax.jit(task.ending)
        self.low, self.high = np.asarray(task.low), np.asarray(task.high)

    def states(self, environments: Sequence[gym.Env]) -> Float[np.ndarray, "B S"]:
        """Where live environments of this task stand, such as those of a Host."""
        found = np.empty((len(environments), mujoco.mj_stateSize(self.model, PHYSICS)))
        for row, env in zip(found, environments, strict=True):
            mujoco.mj_getState(self.model, env.unwrapped.data, row, PHYSICS)
        return found

    def starts(self, seeds: Sequence[int]) -> Float[np.ndarray, "B S"]:
        """Where environments stand after resets with these seeds."""
        env = self.task.make()
        found = []
        for seed in seeds:
            env.reset(seed=seed)
            found.append(self.states([env]))
        env.close()
        return np.concatenate(found)

    def observe(self, states: Float[np.ndarray, "*B S"]) -> Float[np.ndarray, "*B O"]:
        """What an agent sees of the states."""
        position, velocity = np.split(states[..., CLOCK + 1 :], [self.model.nq - 1], axis=-1)
        limit = self.rewards.speed_limit
        return np.concatenate([position, np.clip(velocity, -limit, limit)], axis=-1).astype(np.float32)

    def step(
        self, states: Float[np.ndarray, "B S"], actions: Float[np.ndarray, "B A"]
    ) -> tuple[Float[np.ndarray, "B S"], Step]:
        """One environment step of every copy with its action in [-1, 1]^A, and what it gave."""
        reached, steps = self.sequence(states, actions[:, None])
        return reached[:, 0], jax.tree.map(lambda x: x[:, 0], steps)

    def sequence(
        self, states: Float[np.ndarray, "B S"], actions: Float[np.ndarray, "B H A"]
    ) -> tuple[Float[np.ndarray, "B H S"], Step]:
        """H steps of every copy with given actions; `last` is true from an end on, though the physics goes on."""
        control = rescale(actions, self.low, self.high).astype(np.float64)
        fine, _ = self.pool.rollout(self.model, self.scratch, states, np.repeat(control, self.frame_skip, axis=1))
        reached = np.asarray(fine)[:, self.frame_skip - 1 :: self.frame_skip]
        before = np.concatenate([states[:, None], reached[:, :-1]], axis=1)
        ended = self.ended(reached)
        reward = self.reward(before, reached, control, ended)
        over = np.maximum.accumulate(ended, axis=1)
        return reached, Step.of(self.observe(before), reward, self.observe(reached), ended, over)

    def ended(self, states: Float[np.ndarray, "B H S"]) -> Bool[np.ndarray, "B H"]:
        """Which states are true ends; the task's own rule, read on velocities before they are clipped."""
        seen = states[..., CLOCK + 1 :].reshape(-1, self.task.observations).astype(np.float32)
        rows = np.zeros((padded(len(seen)), seen.shape[1]), np.float32)
        rows[: len(seen)] = seen
        return np.asarray(self.ending(rows))[: len(seen)].reshape(states.shape[:-1])

    def reward(
        self,
        before: Float[np.ndarray, "B H S"],
        after: Float[np.ndarray, "B H S"],
        control: Float[np.ndarray, "B H A"],
        ended: Bool[np.ndarray, "B H"],
    ) -> Float[np.ndarray, "B H"]:
        """Speed along the track, staying upright, and the cost of control."""
        speed = (after[..., CLOCK] - before[..., CLOCK]) / self.seconds
        cost = self.rewards.control * np.sum(control**2, axis=-1)
        return (speed + self.rewards.upright * ~ended - cost).astype(np.float32)

    def follow(self, states: Float[np.ndarray, "B S"], act: Act, horizon: int) -> Trail:
        """A policy's own steps from the states; copies that have ended are left behind."""
        shape, states = (horizon, len(states)), states.copy()
        trail = Trail(
            np.zeros((*shape, self.task.observations), np.float32),
            np.zeros((*shape, self.task.actions), np.float32),
            np.zeros(shape, np.float32),
            np.zeros(shape, bool),
            states,
        )
        going = np.arange(len(states))
        for t in range(horizon):
            if not going.size:
                break
            rows = np.resize(going, padded(going.size))  # repeated rows fill up to one of few sizes
            actions = np.asarray(act(t, self.observe(states[rows])))[: going.size]
            states[going], step = self.step(states[going], actions)
            trail.observation[t, going], trail.action[t, going] = step.observation, actions
            trail.reward[t, going], trail.live[t, going] = step.reward, True
            going = going[~step.last]
        return trail


def retrace(
    simulator: Simulator,
    seed: int,
    rows: Transition,
    index: Int[np.ndarray, " N"],
    stream: int = TRAINING,
) -> Float[np.ndarray, "N S"]:
    """The states in which rows of a run's replay, all of them in order from its first, were collected."""
    breaks = np.any(np.asarray(rows.next_observation)[:-1] != np.asarray(rows.observation)[1:], axis=1)
    firsts = np.concatenate([[0], 1 + np.flatnonzero(breaks)])
    episodes = np.searchsorted(firsts, index, side="right") - 1
    found = np.empty((len(index), mujoco.mj_stateSize(simulator.model, PHYSICS)))
    for group in np.array_split(np.unique(episodes), -(-len(np.unique(episodes)) // GROUP)):
        own = np.isin(episodes, group)
        offsets = index[own] - firsts[episodes[own]]
        places = np.minimum(firsts[group][:, None] + np.arange(offsets.max() + 1), len(breaks))
        starts = simulator.starts([episode_seed(seed, int(episode), stream) for episode in group])
        reached, _ = simulator.sequence(starts, np.asarray(rows.action)[places])
        path = np.concatenate([starts[:, None], reached], axis=1)
        found[own] = path[np.searchsorted(group, episodes[own]), offsets]
    return found


def padded(rows: int) -> int:
    """The next power of two, so that compiled programs meet few sizes."""
    return 1 << max(rows - 1, 0).bit_length()
