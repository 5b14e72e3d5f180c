import jax
import jax.numpy as jnp
import numpy as np

from iadd_tr import adam


def test_array_by_array_adam_takes_the_same_steps_and_rounds_what_it_leaves():
    keys = jax.random.split(jax.random.key(0), 8)
    shapes = {"a": (3, 4), "b": (3, 4), "c": (5,)}
    value = {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=False)}
    like = {name: jnp.zeros(shape, jnp.bfloat16 if name != "c" else jnp.float32) for name, shape in shapes.items()}
    together = in_turn = (value, adam.init(value))
    for key in keys[3:]:
        slope = jax.tree.map(lambda x, key=key: jax.random.normal(key, x.shape), value)
        together = adam.descend(*together, slope, jnp.array(0.1))
        *in_turn, rounded = jax.jit(adam.descend_in_turn)(*in_turn, slope, jnp.array(0.1), like)
        for a, b in zip(*map(jax.tree.leaves, (in_turn, together)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        jax.tree.map(lambda r, x, to: np.testing.assert_array_equal(r, x.astype(to.dtype)), rounded, in_turn[0], like)
