import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.study import latents

SMALL = latents.QUICK


def test_the_flow_is_a_bijection_with_the_stated_volume():
    learned = latents.init(jax.random.key(0), SMALL)
    seen = jax.random.normal(jax.random.key(1), (5, 4))
    _, volume = learned.flow(seen)
    jacobian = jax.vmap(jax.jacfwd(lambda x: learned.flow(x[None])[0][0]))(seen)
    np.testing.assert_allclose(volume, np.linalg.slogdet(np.asarray(jacobian))[1], atol=1e-4)


def test_correlation_forgives_order_sign_and_bending():
    true = np.random.default_rng(0).normal(size=(500, 4))
    assert latents.mean_correlation(true, np.tanh(-true[:, [2, 0, 3, 1]])) == pytest.approx(1.0)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    assert latents.mean_correlation(true, true @ rotation) < 0.9


def test_the_truth_mixes_every_component():
    latent = jnp.zeros((4, 4)) + jnp.eye(4)
    seen = latents.mixture(jax.random.key(0), latent)
    assert np.all(np.abs(np.asarray(seen)).max(1) > 0.1)
    assert float(jnp.abs(jnp.linalg.det(seen))) > 0.1


def test_components_are_found_when_contexts_vary_enough_and_else_not():
    rows = latents.run(SMALL)
    found = {
        kind: np.mean([r["correlation"] for r in rows if r["variation"] == kind]) for kind in ("full", "shared", "none")
    }
    assert found["full"] > 0.95
    assert max(found["shared"], found["none"]) < 0.9
