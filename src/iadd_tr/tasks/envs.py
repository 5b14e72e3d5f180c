"""Environments that step one after another; run as a program, they answer what comes through standard input."""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np


class Envs:
    """Some environments of one task, by number; they answer in columns, a row for each environment asked."""

    def __init__(self, make: Callable[[], gym.Env], count: int):
        self.envs = [make() for _ in range(count)]

    def reset(self, seats: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray]:
        """Start episodes: observations."""
        begun = [self.envs[seat].reset(seed=int(seed))[0] for seat, seed in zip(seats, seeds, strict=True)]
        return (np.array(begun),)

    def step(self, seats: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """One step of each, with actions in the task's own units: observations, rewards, true ends, time limits."""
        results = [self.envs[seat].step(action)[:4] for seat, action in zip(seats, actions, strict=True)]
        return tuple(np.array(column) for column in zip(*results, strict=True))

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
        pickle.dump((answer, problem), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    serve()
