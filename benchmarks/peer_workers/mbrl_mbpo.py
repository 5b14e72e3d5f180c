"""MBPO of mbrl-lib on Hopper, with this library's sizes."""

import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib.resources import files
from typing import Any

import gymnasium
import mbrl.algorithms.mbpo as mbpo  # pyright: ignore[reportMissingImports]
import mbrl.models  # pyright: ignore[reportMissingImports]
import mbrl.util.common  # pyright: ignore[reportMissingImports]
import mbrl.util.env  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from clock import Clock, Finished, begin
from mbrl.third_party.pytorch_sac_pranz24 import SAC  # pyright: ignore[reportMissingImports]
from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]

PACKAGES = ("mbrl", "torch", "hydra-core", "omegaconf", "gymnasium", "mujoco", "numpy")
CONFIGURATION = files("mbrl") / "examples" / "conf"
DONE: Counter[str] = Counter()


class Stepping(gymnasium.Wrapper):
    """Tells the clock of every environment step after the warm-up."""

    def __init__(self, env: gymnasium.Env, clock: Clock, warm_up: int):
        super().__init__(env)
        self.clock, self.left = clock, warm_up

    def step(self, action: Any) -> Any:
        answer = self.env.step(action)
        self.left -= 1
        if self.left < 0:
            self.clock()
        return answer


def main() -> None:
    plan, answers = begin(PACKAGES, torch=torch.get_num_threads())
    cfg = configuration(plan)
    count(mbrl.util.common, "train_model_and_save_model_and_data", "fit")
    count(mbrl.models.ModelTrainer, "evaluate", "holdout")
    count(mbrl.models.OneDTransitionRewardModel, "update", "gradient")
    count(mbpo, "rollout_model_and_populate_sac_buffer", "rollout")
    count(SAC, "update_parameters", "update")
    env, ending, _ = mbrl.util.env.EnvHandler.make_env(cfg)
    clock = Clock(answers, plan, lambda: counts(cfg))
    with suppress(Finished), tempfile.TemporaryDirectory() as folder:
        mbpo.train(Stepping(env, clock, plan["warm_up"]), env, ending, cfg, work_dir=folder)


def configuration(plan: dict[str, Any]) -> Any:
    """The library's example for Hopper; its first fit comes one interval into training, ours at once."""
    changes = {
        "algorithm.agent._recursive_": False,
        "dynamics_model._recursive_": False,
        "algorithm.dataset_size": 100_000,
        "algorithm.random_initial_explore": True,
        "algorithm.initial_exploration_steps": plan["warm_up"] - plan["fit_every"],
        "algorithm.real_data_ratio": 0.05,
        "overrides.env": "gym___Hopper-v5",
        "overrides.epoch_length": plan["fit_every"] + plan["length"],
        "overrides.freq_train_model": plan["fit_every"],
        "overrides.num_epochs_train_model": 100,
        "overrides.num_sac_updates_per_step": plan["updates_per_step"],
        "overrides.sac_hidden_size": 256,
        "overrides.sac_target_update_interval": 1,
        "overrides.sac_automatic_entropy_tuning": True,
        "overrides.sac_target_entropy": -1,
    }
    parts = {
        "algorithm": "algorithm/mbpo",
        "dynamics_model": "dynamics_model/gaussian_mlp_ensemble",
        "overrides": "overrides/mbpo_hopper",
    }
    cfg = OmegaConf.create({"seed": 1, "device": "cpu", "log_frequency_agent": 1000})
    for name, file in parts.items():
        cfg[name] = OmegaConf.load(str(CONFIGURATION / f"{file}.yaml"))
    for name, value in changes.items():
        OmegaConf.update(cfg, name, value)
    return cfg


def count(owner: Any, name: str, label: str) -> None:
    """Let a function of the library note its calls and their seconds."""
    function = getattr(owner, name)

    def counted(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        answer = function(*arguments, **options)
        DONE.update({f"{label}_seconds": time.perf_counter() - start, f"{label}_calls": 1})  # pyright: ignore
        return answer

    setattr(owner, name, counted)


def counts(cfg: Any) -> dict[str, float]:
    """What has been done so far; a fit looks at its holdout once before its first epoch and once after each."""
    rows = cfg.overrides.freq_train_model * cfg.overrides.effective_model_rollouts_per_step
    return {
        "updates": DONE["update_calls"],
        "fit_seconds": DONE["fit_seconds"],
        "fit_epochs": DONE["holdout_calls"] - DONE["fit_calls"],
        "gradient_steps": DONE["gradient_calls"],
        "rollout_seconds": DONE["rollout_seconds"],
        "imagined_rows": DONE["rollout_calls"] * rows,
    }


if __name__ == "__main__":
    main()
