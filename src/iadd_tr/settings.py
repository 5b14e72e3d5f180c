"""Every number of the method, defined once: the paper's where it speaks, MBPO's where it is silent."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Algorithm = Literal["iadd-tr", "iadd", "mbpo-tr", "mbpo", "sac", "ppo", "slbo"]
Targeting = Literal["gradient", "solve"]
Form = Literal["direct", "residual", "smooth"]


@dataclass(frozen=True)
class Model:
    """The ensemble: one member's shape and how it is fitted."""

    members: int = 7
    elites: int = 5
    width: int = 200
    """Units of each hidden layer."""
    depths: tuple[int, ...] = (1, 4)
    """Hidden layers of the intervention and of the evolution."""
    monolith_depth: int = 4
    """Hidden layers of a monolithic member."""
    form: Form = "smooth"
    """The observable block of the intermediate state; `direct` is the paper's text."""
    evolve_from: Literal["intermediate", "state"] = "intermediate"
    """Where the evolution's state difference starts."""
    latent: Literal["deterministic", "gaussian"] = "deterministic"
    latent_width: int | None = None
    """Width of the latent block; as wide as the observation where not given."""
    linear_path: bool = True
    """Whether a linear path leads past the evolution's hidden layers."""
    normalise_target: bool = True
    """Whether members predict in units of the training rows' deviations; MBPO's own do not."""
    model_rate: float = 1e-3
    fit_batch: int = 256
    patience: int = 5
    """A fit ends after more than this many epochs in which no member's holdout error fell by 1 %."""
    fit_epochs: int = 100
    """A fit ends after this many epochs in any case."""
    zero_rows: Literal["collected", "generated"] = "collected"
    """Which zero-action rows the two-stage model is fitted to: the real ones, or, as in the paper's text, a zero-action
    model's."""
    zero_fraction: float = 0.1
    """Share of generated zero-action rows in a minibatch of the two-stage model."""


@dataclass(frozen=True)
class Agent:
    """Soft actor-critic and its targeted correction."""

    hidden: int = 256
    """Units of each of the two hidden layers."""
    batch: int = 256
    gamma: float = 0.99
    polyak: float = 0.005
    agent_rate: float = 3e-4
    target_entropy: float = -1.0
    targeting: Targeting = "gradient"
    """How the correction is fitted: a network by gradient, as the paper's text, or a polynomial solved for."""
    epsilon_target: Literal["slow", "online"] = "slow"
    """Whose values stand in the correction's target: the slow critics', as in the paper, or the critics' own."""
    epsilon_hidden: int = 64
    """Units of each of the two hidden layers of the correction fitted by gradient."""
    epsilon_rate: float = 3e-4
    epsilon_degree: int = 1
    """Of the solved correction in each coordinate of the action."""
    epsilon_decay: float = 0.995
    """Of the means that the correction is solved from, at each update: as slow as the target critics."""
    epsilon_ridge: float = 1e-3
    """Draws the solved correction to zero."""


@dataclass(frozen=True)
class Loop:
    """The order of the stages and how often each runs."""

    epochs: int = 60
    epoch_length: int = 1000
    warm_up: int = 5000
    """Uniform actions before the first epoch; not counted in the logged steps."""
    updates_per_step: int = 20
    fit_every: int = 250
    rollouts_per_step: int = 400
    horizon: tuple[int, ...] = (1, 1, 0, 1)
    """x,y,a,b: imagined steps grow from x to y over the epochs a to b."""
    imagined_noise: float = 0.03
    """Least deviation of an imagined observation, in units of the observations' own."""
    kept_epochs: int = 1
    """How many epochs of imagined rows are kept."""
    real_share: float = 0.05
    """Share of real rows in an agent's minibatch."""
    evaluation_episodes: int = 1


@dataclass(frozen=True)
class Ppo:
    """Proximal policy optimisation."""

    environments: int = 1
    """Environments of each run; the budget counts the steps of all."""
    rollout_steps: int = 2048
    """Steps over all environments between two improvements."""
    passes: int = 10
    minibatches: int = 32
    clip: float = 0.2
    gae: float = 0.95
    """Decay of generalised advantages."""
    ppo_rate: float = 3e-4
    """Falls linearly to zero over the budget."""
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    gradient_norm: float = 0.5
    ppo_hidden: int = 64
    """Units of each of the two hidden layers."""


@dataclass(frozen=True)
class Slbo:
    """Stochastic lower-bound optimisation."""

    stage_steps: int = 10_000
    """Real steps between two improvements."""
    rounds: int = 20
    """Turns of model and policy in an improvement."""
    model_updates: int = 100
    policy_updates: int = 40
    virtual_steps: int = 4000
    """Virtual steps of one policy update, over all virtual environments."""
    virtual_environments: int = 4
    starts: int = 1000
    """Real resets that virtual episodes start from, drawn anew before each improvement."""
    noise: float = 0.3
    noise_return: float = 0.15
    """Deviation and mean reversion of the Ornstein-Uhlenbeck noise on real actions."""
    model_width: int = 500
    model_batch: int = 128
    model_horizon: int = 2
    """Consecutive steps in the model's loss."""
    model_norm: float = 2.0
    weight_penalty: float = 1e-5
    slbo_rate: float = 1e-3
    policy_hidden: int = 32
    value_hidden: int = 64
    value_passes: int = 5
    value_batch: int = 64
    bound: float = 0.01
    """Divergence that one policy update may reach."""
    conjugate_steps: int = 10
    damping: float = 0.1
    slbo_entropy: float = 0.005
    slbo_gae: float = 0.95


@dataclass(frozen=True)
class Settings:
    """One batch of runs."""

    task: str = "hopper"
    algo: Algorithm = "iadd-tr"
    runs: int = 1
    """Seeds per combination of the scalars below."""
    seed: int = 1
    """The first seed; the others follow."""
    betas: tuple[float, ...] = (1.0,)
    """Weights of targeted regularization, each with all seeds."""
    zero_ratios: tuple[float, ...] = (0.02,)
    """Shares of collected actions replaced by the reference action, each with all seeds."""
    floors: tuple[float, ...] = (1.0,)
    """Floors of the densities that divide the correction, each with all seeds."""
    zero_action: tuple[float, ...] | None = None
    """The reference action in the task's own units; all zeros where not given."""
    checkpoint_every: int = 1
    """Epochs between two checkpoints."""
    loop: Loop = field(default_factory=Loop)
    model: Model = field(default_factory=Model)
    agent: Agent = field(default_factory=Agent)
    ppo: Ppo = field(default_factory=Ppo)
    slbo: Slbo = field(default_factory=Slbo)

    @property
    def seats(self) -> tuple[int, ...]:
        """The axes of one run's environments: none where the algorithm steps a single one."""
        return (self.ppo.environments,) if self.algo == "ppo" else ()

    @property
    def two_stage(self) -> bool:
        return self.algo in ("iadd", "iadd-tr")

    @property
    def generates_zeros(self) -> bool:
        """Whether a zero-action model makes rows for the fit."""
        return self.two_stage and self.model.zero_rows == "generated"

    @property
    def stores_zeros(self) -> bool:
        """Whether zero-action rows are kept apart for a use of their own."""
        return self.two_stage or any(self.zero_ratios)

    @property
    def targeted(self) -> bool:
        return any(beta > 0 for beta in self.betas)


GROUPS = {"loop": Loop, "model": Model, "agent": Agent, "ppo": Ppo, "slbo": Slbo}


def override(settings: Settings, **changes: Any) -> Settings:
    """The settings with some fields changed, named without their group."""
    groups = {name: getattr(settings, name) for name in GROUPS}
    owners = {f.name: group for group, record in groups.items() for f in fields(record)}
    unknown = set(changes) - set(owners) - {f.name for f in fields(Settings)}
    if unknown:
        raise TypeError(f"There is no setting {', '.join(sorted(unknown))}.")
    for group, record in groups.items():
        own = {name: value for name, value in changes.items() if owners.get(name) == group}
        settings = replace(settings, **{group: replace(record, **own)})
    return replace(settings, **{name: value for name, value in changes.items() if name not in owners})


def unless_asked(options: Any, **changes: Any) -> Any:
    """Options with some fields changed, wherever these hold nothing else than their defaults."""
    default = type(options)()
    return replace(options, **{k: v for k, v in changes.items() if getattr(options, k) == getattr(default, k)})


def rollout_length(loop: Loop, epoch: int) -> int:
    """The thresholded linear schedule of Appendix A."""
    x, y, a, b = loop.horizon
    return int(min(max(x + (epoch - a) * (y - x) / (b - a), x), y))


def imagined_limit(loop: Loop, length: int) -> int:
    """Rows that the imagined buffer keeps at a rollout length."""
    return loop.kept_epochs * length * loop.rollouts_per_step * loop.epoch_length


def rollouts_per_fit(loop: Loop, model: Model) -> int:
    """Rollouts after each fit, rounded up so that every elite computes equally many."""
    return -(-loop.rollouts_per_step * loop.fit_every // model.elites) * model.elites
