"""Environments that step one after another; run as a program, they answer what comes through standard input."""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np


class Reflex(NamedTuple):
    """A deterministic policy in plain arrays, which a process without the learning library can follow."""

    layers: Sequence[tuple[np.ndarray, np.ndarray]]
    """Weights and biases of a perceptron from what is seen to an action not yet bounded."""
    activation: str
    """`relu` or `tanh`, between the layers."""
    bound: str
    """How an action comes into [-1, 1]: `tanh` or `clip`."""
    scale: tuple[np.ndarray, np.ndarray] | None = None
    """Mean and deviation of what it sees, where it is standardised."""

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """The action in [-1, 1]^A."""
        x = np.asarray(observation, np.float32)
        if self.scale is not None:
            x = np.clip((x - self.scale[0]) / self.scale[1], -10.0, 10.0)
        *hidden, (weight, bias) = self.layers
        for inner, offset in hidden:
            x = np.tanh(x @ inner + offset) if self.activation == "tanh" else np.maximum(x @ inner + offset, 0.0)
        x = x @ weight + bias
        return np.tanh(x) if self.bound == "tanh" else np.clip(x, -1.0, 1.0)


def rescale(action: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """From [-1, 1] to the task's bounds, never past them."""
    return np.clip(low + (np.float64(action) + 1.0) * 0.5 * (high - low), low, high).astype(np.float32)


def walk(
    env: gym.Env, observation: np.ndarray, policy: Reflex, bounds: tuple[np.ndarray, np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray, float, bool]]:
    """A policy's steps from an observation to the end of the episode: what it saw and did, the reward, a true end."""
    ended = cut = False
    while not (ended or cut):
        action = policy(observation)
        following, reward, ended, cut, _ = env.step(rescale(action, *bounds))
        yield observation, action, float(reward), bool(ended)
        observation = following


def episode_seed(seed: int, episode: int, stream: int = 0) -> int:
    """The seed of a reset, from the run's seed, the episode and what it is for."""
    return int(np.random.SeedSequence([seed, episode, stream]).generate_state(1)[0])


class Life(NamedTuple):
    """Which episode an environment is in, and where the seeds of the next ones come from."""

    seed: int
    stream: int
    episode: int

    @property
    def start(self) -> int:
        """The seed of the episode's reset."""
        return episode_seed(self.seed, self.episode, self.stream)

    def after(self, episodes: int) -> "Life":
        return self._replace(episode=self.episode + episodes)


def follow(env: gym.Env, life: Life, actions: np.ndarray) -> Iterator[tuple[np.ndarray, float, bool, bool, np.ndarray]]:
    """Steps with these actions: what each reached, its reward, a true end, a time limit, and what is seen next, which
    is the start of a new episode where one is over."""
    for action in actions:
        observation, reward, ended, cut, _ = env.step(action)
        reached = following = np.array(observation)
        if ended or cut:
            life = life.after(1)
            following = np.array(env.reset(seed=life.start)[0])
        yield reached, float(reward), ended, cut, following


class Envs:
    """Some environments of one task, by number; they answer in columns, a row for each environment asked."""

    def __init__(self, make: Callable[[], gym.Env], count: int):
        self.envs = [make() for _ in range(count)]

    def reset(self, seats: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray]:
        """Start episodes: observations."""
        begun = [self.envs[seat].reset(seed=int(seed))[0] for seat, seed in zip(seats, seeds, strict=True)]
        return (np.array(begun),)

    def step(self, seats: np.ndarray, lives: Sequence[tuple], actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Some steps of each, with actions [n, T, A] in the task's own units: the columns of `follow`, [n, T]."""
        steps = [
            zip(*follow(self.envs[seat], Life(*life), own), strict=True)
            for seat, life, own in zip(seats, lives, actions, strict=True)
        ]
        return tuple(np.array(column) for column in zip(*steps, strict=True))

    def play(
        self,
        seats: np.ndarray,
        seeds: np.ndarray,
        policies: Sequence[tuple],
        bounds: tuple[np.ndarray, np.ndarray],
        gamma: float,
        longest: int,
    ) -> tuple[np.ndarray, ...]:
        """A whole episode of each with its policy, a reflex as a tuple: rewards in all, discounted ones, and steps."""
        played = [
            self._episode(self.envs[seat], int(seed), Reflex(*policy), bounds, gamma, longest)
            for seat, seed, policy in zip(seats, seeds, policies, strict=True)
        ]
        return tuple(np.array(column) for column in zip(*played, strict=True))

    def _episode(
        self,
        env: gym.Env,
        seed: int,
        policy: Reflex,
        bounds: tuple[np.ndarray, np.ndarray],
        gamma: float,
        longest: int,
    ) -> tuple[float, float, int]:
        total, discounted, steps = 0.0, 0.0, 0
        for _, _, reward, _ in islice(walk(env, env.reset(seed=seed)[0], policy, bounds), longest):
            total += reward
            discounted += gamma**steps * reward
            steps += 1
        return total, discounted, steps

    def close(self) -> None:
        for env in self.envs:
            env.close()


def serve() -> None:
    """Make environments and call them, message by message; whatever they print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted program ends its workers itself
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    envs: Any = None
    while True:
        try:
            name, arguments = pickle.load(questions)
        except EOFError:
            return
        answer, problem = None, None
        try:
            if name == "make":
                envs = Envs(pickle.loads(arguments[0]), arguments[1])
            else:
                answer = getattr(envs, name)(*arguments)
        except Exception:
            problem = traceback.format_exc()
        try:
            pickle.dump((answer, problem), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # nobody waits for the answer any more, nor for what is left of it
            os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
            return


if __name__ == "__main__":
    serve()
