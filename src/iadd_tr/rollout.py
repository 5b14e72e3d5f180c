"""Short imagined rollouts branched from real states."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from iadd_tr import replay
from iadd_tr.agent import policy
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Ensemble, Outcome
from iadd_tr.nets import MLP
from iadd_tr.replay import Replay
from iadd_tr.shuffle import shuffle
from iadd_tr.types import Ending, PRNGKey, Transition


def imagine(
    key: PRNGKey,
    actor: MLP,
    model: Ensemble,
    start: Float[Array, "B O"],
    horizon: Int[Array, ""],
    ending: Ending | None,
    imagined: Replay,
    least_noise: float = 0.0,
) -> Replay:
    """Store every live row of `horizon` steps from `start`; a row that ended or broke takes no further step."""

    def step(i: Int[Array, ""], carry: tuple[Float[Array, "B O"], Bool[Array, " B"], Replay]):
        observation, live, buffer = carry
        shuffle_key, action_key, outcome_key, end_key = jax.random.split(jax.random.fold_in(key, i), 4)
        order = shuffle(shuffle_key, live.size, live.size)  # each row meets a random elite
        observation, live = observation[order], live[order]
        action, log_density = policy.sample(action_key, actor, observation)
        outcome = ensembles.sample(outcome_key, model, observation, action, least_noise)
        ended = ends(end_key, outcome, ending)
        row = Transition(
            observation,
            action,
            log_density,
            outcome.reward,
            outcome.next_observation,
            jnp.where(ended, 0.0, 1.0),
        )
        live = live & finite(outcome)
        return outcome.next_observation, live & ~ended, replay.extend(buffer, row, live)

    carry = (start, jnp.ones(start.shape[0], bool), imagined)
    return jax.lax.fori_loop(0, horizon, step, carry)[2]


def ends(key: PRNGKey, outcome: Outcome, ending: Ending | None) -> Bool[Array, " B"]:
    """The task's own ending, or a draw from the model's head where the task gives none."""
    if ending is not None:
        return ending(outcome.next_observation)
    return jax.random.bernoulli(key, jax.nn.sigmoid(outcome.end_logit))


def finite(outcome: Outcome) -> Bool[Array, " B"]:
    """Which rows hold numbers."""
    return jnp.isfinite(outcome.reward) & jnp.all(jnp.isfinite(outcome.next_observation), axis=-1)
