"""Looking at a finished or running run: returns of its policies, and a video."""

import os
import sys
import warnings
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import numpy as np

from iadd_tr.evaluate import Evaluator
from iadd_tr.runs import rows
from iadd_tr.shell import config
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.run import restore
from iadd_tr.stage import Problem
from iadd_tr.tasks.envs import episode_seed, walk
from iadd_tr.tasks.host import EVALUATION
from iadd_tr.tasks.task import Task, resolve
from iadd_tr.training import Start, algorithm_of

EVALUATION_STREAM = 1_000_000  # an epoch no training reaches, so that these starts are new


def load(folder: Path) -> tuple[Problem, Start]:
    """A run folder's problem and last checkpoint."""
    settings = config.load(folder)
    problem = Problem(resolve(settings.task, settings.zero_action), settings)
    start = restore(problem, folder)
    if start is None:
        raise UserError(f"'{folder}' has no checkpoint yet; wait for its first epoch to end.")
    return problem, start


class Player:
    """The policies of a run folder's last checkpoint."""

    def __init__(self, folder: Path):
        self.problem, start = load(folder)
        self.epoch = start.epoch
        self.rows = rows(self.problem.settings)
        self.policies = algorithm_of(self.problem.settings).reflexes(start.state)

    def returns(self, episodes: int) -> np.ndarray:
        """Returns [R, episodes]."""
        with closing(Evaluator(self.problem.task, [row.seed for row in self.rows], episodes)) as evaluator:
            return evaluator.play(self.policies, EVALUATION_STREAM).returned

    def video(self, path: Path, run: int) -> float:
        """Record one episode of one run, and return what it earned."""
        import imageio.v2 as imageio

        task = self.problem.task
        bounds = np.asarray(task.low), np.asarray(task.high)
        env, observation = _on_stage(task, episode_seed(self.rows[run].seed, EVALUATION_STREAM, EVALUATION))
        total = 0.0
        warnings.filterwarnings("ignore", message=".*os.fork.*")  # the encoder's own process, before any frame
        with imageio.get_writer(path, fps=int(env.metadata.get("render_fps", 30)), macro_block_size=8) as writer:
            for _, _, reward, _ in walk(env, observation, self.policies[run], bounds):
                writer.append_data(np.asarray(env.render()))  # pyright: ignore
                total += reward
        env.close()
        return total


def _on_stage(task: Task, seed: int) -> tuple[gym.Env, np.ndarray]:
    """An environment that can be filmed, reset, and its observation."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # a half-made viewer complains when it is deleted
    try:
        env = task.make(render_mode="rgb_array")
        observation, _ = env.reset(seed=seed)
        env.render()
        return env, observation
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    finally:
        sys.unraisablehook = hook
    raise no_renderer(reason)


def no_renderer(reason: str) -> UserError:
    """What to do where no frame can be made."""
    return UserError(
        f"No frame could be rendered ({reason}); install EGL or OSMesa (libegl1 or libosmesa6) and set MUJOCO_GL=egl "
        "or MUJOCO_GL=osmesa."
    )
