from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.dynamics.folded import Folded, each, fold, halve, unfold
from iadd_tr.nets import GLOROT_UNIFORM, MLP, mlp


def network(sizes, seed=0):
    """None of its numbers is zero."""
    net = mlp(jax.random.key(seed), sizes, jax.nn.swish, GLOROT_UNIFORM)
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape), jnp.float32), net)


def distance(a, b) -> float:
    return float(np.linalg.norm(np.ravel(a) - np.ravel(b)) / np.linalg.norm(np.ravel(b)))


SIZES = [[5, 70, 40, 3], [7, 7, 8, 8], [8, 15, 16, 1], [3, 24, 2], [4, 6]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_folded_network_answers_and_learns_as_it_does_unfolded(sizes):
    net, x = network(sizes), jax.random.normal(jax.random.key(1), (50, sizes[0]))
    folded = fold(net)
    jax.tree.map(np.testing.assert_array_equal, unfold(folded), net)
    np.testing.assert_allclose(jax.jit(lambda x: folded(x))(x), net(x), rtol=1e-4, atol=1e-5)

    def gradient(n):
        return jax.jit(jax.grad(lambda n: jnp.mean((n(x) - 1.0) ** 2)))(n)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), gradient(folded), fold(gradient(net))
    )


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_in_half_precision_it_answers_and_learns_the_same_up_to_rounding(sizes):
    net, x = network(sizes), jax.random.normal(jax.random.key(1), (50, sizes[0]))
    half = halve(fold(net))
    assert all(matrix.dtype == jnp.bfloat16 for matrix in half.matrices)
    answer = jax.jit(lambda x: half(x))(x)
    assert answer.dtype == jnp.float32
    assert 1e-4 < distance(answer, net(x)) < 0.02

    def gradient(n):
        return jax.jit(jax.grad(lambda n: jnp.mean((n(x) - 1.0) ** 2)))(n)

    for ours, single in zip(*map(jax.tree.leaves, (gradient(half), fold(gradient(net)))), strict=True):
        assert distance(ours.astype(jnp.float32), single) < 0.03


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_matrices_have_sizes_that_products_like_and_follow_each_other(sizes):
    folded = fold(network(sizes))
    shapes = [matrix.shape for matrix in folded.matrices]
    assert all(size % 8 == 0 for shape in shapes for size in shape)
    assert all(before[1] == after[0] for before, after in pairwise(shapes))


def test_perceptrons_of_a_tree_are_folded_member_by_member_and_all_else_stays():
    members = [network([5, 9, 3], seed) for seed in (1, 2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *members)
    scale = jnp.array([1.0, 1 / 3])
    folded = each(fold, MLP, {"net": stacked, "scale": scale})
    x = jax.random.normal(jax.random.key(1), (2, 20, 5))
    for member, answer, own in zip(members, jax.vmap(lambda n, x: n(x))(folded["net"], x), x, strict=True):
        np.testing.assert_allclose(answer, fold(member)(own), rtol=1e-5, atol=1e-6)
    assert folded["scale"] is scale
    jax.tree.map(np.testing.assert_array_equal, each(unfold, Folded, folded)["net"], stacked)
