from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.dynamics.folded import fold, fold_members
from iadd_tr.nets import GLOROT_UNIFORM, mlp


def network(sizes, seed=0):
    """None of its numbers is zero."""
    net = mlp(jax.random.key(seed), sizes, jax.nn.swish, GLOROT_UNIFORM)
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(x + random.normal(0, 0.2, x.shape), jnp.float32), net)


def distance(a, b) -> float:
    return float(np.linalg.norm(np.ravel(a) - np.ravel(b)) / np.linalg.norm(np.ravel(b)))


SIZES = [[5, 70, 40, 3], [7, 7, 8, 8], [8, 15, 16, 1], [3, 24, 2], [4, 6]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_folded_network_answers_and_learns_in_single_precision_up_to_rounding(sizes):
    net, x = network(sizes), jax.random.normal(jax.random.key(1), (50, sizes[0]))
    answer = jax.jit(lambda n: fold(n)(x))(net)
    assert answer.dtype == jnp.float32
    assert 1e-4 < distance(answer, net(x)) < 0.02

    def gradient(wrap):
        return jax.jit(jax.grad(lambda n: jnp.mean((wrap(n)(x) - 1.0) ** 2)))(net)

    for half, single in zip(*map(jax.tree.leaves, (gradient(fold), gradient(lambda n: n))), strict=True):
        assert half.dtype == jnp.float32
        assert distance(half, single) < 0.03


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_matrices_have_sizes_that_products_like_and_follow_each_other(sizes):
    folded = fold(network(sizes))
    shapes = [matrix.shape for matrix in folded.matrices]
    assert all(size % 8 == 0 for shape in shapes for size in shape)
    assert all(before[1] == after[0] for before, after in pairwise(shapes))
    for matrix, rows, columns in zip(folded.matrices, sizes, sizes[1:], strict=False):
        assert not matrix[rows + 1 :].any()
        assert not matrix[:, columns:].any()
        assert matrix.dtype == jnp.bfloat16


def test_perceptrons_of_a_tree_are_folded_member_by_member_and_all_else_stays():
    members = [network([5, 9, 3], seed) for seed in (1, 2)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *members)
    scale = jnp.array([1.0, 1 / 3])
    folded = fold_members({"net": stacked, "scale": scale})
    x = jax.random.normal(jax.random.key(1), (2, 20, 5))
    for member, answer, own in zip(members, jax.vmap(lambda n, x: n(x))(folded["net"], x), x, strict=True):
        np.testing.assert_array_equal(answer, fold(member)(own))
    assert folded["scale"] is scale
