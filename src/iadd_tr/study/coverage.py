"""Theorem 1: the post-intervention state is recovered where zero-action rows cover it, and only there."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from iadd_tr.study import synthetic
from iadd_tr.tasks import oscillator


@dataclass(frozen=True)
class Coverage:
    """Ensembles whose evolution sees the post-intervention state alone, so that it can be injective (A1)."""

    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    covered: float = 0.7
    """Zero-action rows start at velocities up to this."""
    rows: int = 50_000
    epochs: int = 40
    width: int = 16
    rate: float = 1e-3


FULL = Coverage()
QUICK = Coverage(seeds=(1, 2), rows=8000, epochs=60, width=12, rate=5e-3)


def run(scale: Coverage) -> list[dict[str, Any]]:
    """Recovery error by how fast the true post-intervention state is, with and without zero-action rows."""
    study = synthetic.Study(
        ratios=(0.0, 0.3),
        seeds=scale.seeds,
        forms=("residual",),
        rows=scale.rows,
        epochs=scale.epochs,
        zero_extent=(oscillator.EXTENT[0], scale.covered),
        width=scale.width,
        rate=scale.rate,
        latent_width=0,
    )
    fitted, data = synthetic.train(study)
    truth = synthetic.held_out(study)
    intermediate = oscillator.intervene(truth.state, truth.action)

    def errors(fitted: synthetic.Fitted, data: synthetic.Data) -> Float[Array, " N"]:
        recovered = synthetic.recover(fitted.parameters, data.scale, truth.state, truth.action)
        return jnp.mean((recovered - intermediate[None]) ** 2, axis=(0, 2))

    squared = np.asarray(jax.vmap(jax.vmap(errors))(fitted["residual"], data))
    speed = np.abs(np.asarray(intermediate)[:, 1])
    return [
        {
            "ratio": ratio,
            "seed": seed,
            "speed": float(0.5 * (low + high)),
            "covered": bool(high <= scale.covered + 1e-9),
            "error": float(np.sqrt(squared[s, r, inside].mean())),
            "rows": int(inside.sum()),
        }
        for r, ratio in enumerate(study.ratios)
        for s, seed in enumerate(study.seeds)
        for low, high in bins(scale.covered)
        if (inside := (low <= speed) & (speed < high)).any()
    ]


def bins(covered: float) -> list[tuple[float, float]]:
    """Intervals of speed that do not straddle the edge of the covered region."""
    step = covered / 4
    return [(i * step, (i + 1) * step) for i in range(int(2.3 / step))]


def ratio_outside(rows: list[dict[str, Any]], ratio: float) -> float:
    """How many times larger the error is outside the covered region than inside, at the median over seeds."""

    def mean(seed: int, covered: bool) -> float:
        own = [r for r in rows if (r["seed"], r["ratio"], r["covered"]) == (seed, ratio, covered)]
        return float(np.sqrt(np.average([r["error"] ** 2 for r in own], weights=[r["rows"] for r in own])))

    return float(np.median([mean(seed, False) / mean(seed, True) for seed in {row["seed"] for row in rows}]))
