"""Tables 1 and 2 of the paper as data, and MBPO's own numbers where the paper follows it."""

from dataclasses import dataclass, field, replace
from typing import Any

from iadd_tr.settings import Agent, Algorithm, Loop, Model, Settings


@dataclass(frozen=True)
class Preset:
    """An environment and what its settings are."""

    environment: str
    loop: Loop
    agent: Agent
    model: Model = field(default_factory=Model)
    arguments: tuple[tuple[str, Any], ...] = ()
    checkpoint_every: int = 1


PLAIN_HUMANOID = tuple(
    (f"include_{part}_in_observation", False) for part in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
)

PRESETS: dict[str, Preset] = {
    "halfcheetah": Preset("HalfCheetah-v5", Loop(epochs=90, updates_per_step=40), Agent(target_entropy=-3.0)),
    "hopper": Preset("Hopper-v5", Loop(epochs=60, horizon=(1, 15, 20, 100)), Agent(target_entropy=-1.0)),
    "walker2d": Preset("Walker2d-v5", Loop(epochs=200), Agent(target_entropy=-3.0)),
    "ant": Preset(
        "Ant-v5",
        Loop(epochs=200, horizon=(1, 25, 20, 100)),
        Agent(target_entropy=-4.0),
        arguments=(("include_cfrc_ext_in_observation", False),),
        checkpoint_every=10,
    ),
    "humanoid": Preset(
        "Humanoid-v5",
        Loop(epochs=200, fit_every=1000, horizon=(1, 25, 20, 300), kept_epochs=5),
        Agent(target_entropy=-2.0),
        Model(width=400),
        arguments=PLAIN_HUMANOID,
        checkpoint_every=10,
    ),
    "inverted-pendulum": Preset(
        "InvertedPendulum-v5",
        Loop(epochs=15, epoch_length=250, warm_up=500, updates_per_step=10),
        Agent(target_entropy=-0.05),
    ),
}


def settings(task: str, algo: Algorithm) -> Settings:
    """The resolved settings of an algorithm on a task; any other environment starts from Hopper's with horizon 1."""
    preset = PRESETS.get(task) or Preset("", Loop(), Agent())
    two_stage = algo in ("iadd", "iadd-tr")
    return Settings(
        task=task,
        algo=algo,
        betas=(1.0,) if algo.endswith("-tr") else (0.0,),
        zero_ratios=Settings.zero_ratios if two_stage else (0.0,),
        checkpoint_every=preset.checkpoint_every,
        loop=_loop(preset.loop, algo),
        model=preset.model,
        agent=preset.agent,
    )


def _loop(loop: Loop, algo: Algorithm) -> Loop:
    """SAC improves once per step on real rows; PPO and SLBO have no use for a warm-up."""
    if algo == "sac":
        return replace(loop, updates_per_step=1, real_share=1.0)
    return replace(loop, warm_up=0) if algo in ("ppo", "slbo") else loop
