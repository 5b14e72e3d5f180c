"""Tiny environments whose values and best actions are known in closed form."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np


class Bandit(gym.Env):
    """One step, reward -(a - s/2)^2: Q(s, a) is the reward itself and the best action is s/2."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.state, {}

    def step(self, action: np.ndarray):
        reward = -float((action[0] - 0.5 * self.state[0]) ** 2)
        return self.state, reward, True, False, {}


class Drift(gym.Env):
    """s' = 0.9 s + 0.2 a, reward -s'^2, twenty steps to the time limit: the best action pushes s towards zero."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.time = 0
        self.state = self.np_random.uniform(-1.0, 1.0, 1).astype(np.float32)
        return self.state, {}

    def step(self, action: np.ndarray):
        self.time += 1
        self.state = (0.9 * self.state + 0.2 * action).astype(np.float32)
        return self.state, -float(self.state[0] ** 2), False, self.time == 20, {}


PROBES: dict[str, Callable[..., gym.Env]] = {"bandit": Bandit, "drift": Drift}
