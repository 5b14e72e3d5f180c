"""SAC of Stable-Baselines3, or of SBX where it is installed, on Hopper."""

from contextlib import suppress
from importlib.util import find_spec

import torch  # pyright: ignore[reportMissingImports]
from clock import Clock, Finished, begin
from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]

COMMON = ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")

if find_spec("sbx"):
    from sbx import SAC  # pyright: ignore[reportMissingImports]

    PACKAGES = ("sbx-rl", "jax", "jaxlib", "flax", "optax", *COMMON)
else:
    from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]

    PACKAGES = COMMON


class Stepping(BaseCallback):
    """Tells the clock of every environment step."""

    def __init__(self, clock: Clock, warm_up: int):
        super().__init__()
        self.clock, self.warm_up = clock, warm_up

    def _on_step(self) -> bool:
        if self.num_timesteps > self.warm_up:
            self.clock()
        return True


def main() -> None:
    plan, answers = begin(PACKAGES, torch=torch.get_num_threads())
    model = SAC(
        "MlpPolicy",
        "Hopper-v5",
        learning_starts=plan["warm_up"],
        train_freq=1,
        gradient_steps=plan["updates_per_step"],
        batch_size=256,
        policy_kwargs={"net_arch": [256, 256]},
        device="cpu",
        seed=1,
    )
    clock = Clock(answers, plan, lambda: {"updates": model._n_updates})
    with suppress(Finished):
        model.learn(plan["warm_up"] + plan["length"], Stepping(clock, plan["warm_up"]))


if __name__ == "__main__":
    main()
