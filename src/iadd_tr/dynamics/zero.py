"""The zero-action model: fitted on real zero-action rows only, it makes the rows that teach the anchor."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from iadd_tr import replay
from iadd_tr.dynamics import ensemble as ensembles
from iadd_tr.dynamics.ensemble import Ensemble
from iadd_tr.dynamics.examples import Extra
from iadd_tr.replay import Replay
from iadd_tr.types import PRNGKey, Transition

POOL = 10_000


def generate(
    key: PRNGKey,
    model: Ensemble,
    real: Replay,
    zeros: Replay,
    reference: Float[Array, " A"],
    share: Float[Array, ""],
) -> Extra:
    """Zero-action transitions from states of the real replay; a run without zero rows gives them no share."""
    start_key, outcome_key = jax.random.split(key)
    count = POOL // model.elites.size * model.elites.size
    start = replay.sample(start_key, real, count).observation
    action = jnp.broadcast_to(reference, (count, reference.size))
    outcome = ensembles.sample(outcome_key, model, start, action)
    rows = Transition(
        observation=start,
        action=action,
        log_density=jnp.zeros(count),
        reward=outcome.reward,
        next_observation=outcome.next_observation,
        discount=1.0 - jax.nn.sigmoid(outcome.end_logit),
    )
    return Extra(rows, jnp.where(zeros.size > 0, share, 0.0))
