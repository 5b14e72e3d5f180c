import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iadd_tr.products import WIDE, coarse, multiply, multiply_coarsely, turned

GROWING, SHRINKING = ((6, 5), (5, 70)), ((8, 70), (70, 3))


def drawn(*shapes):
    random = np.random.default_rng(0)
    return [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]


def gradient(product, x, weight):
    """Of a sum in which every number of the product counts differently."""
    count = jnp.cos(jnp.arange(product(x, weight).size, dtype=jnp.float32)).reshape(*x.shape[:-1], -1)
    return jax.jit(jax.grad(lambda x, weight: jnp.sum(count * product(x, weight)), (0, 1)))(x, weight)


def distance(a, b) -> float:
    return float(np.linalg.norm(np.ravel(a) - np.ravel(b)) / np.linalg.norm(np.ravel(b)))


@pytest.mark.parametrize("shapes", [GROWING, SHRINKING, ((5,), (5, 7)), ((2, 3, 5), (5, 7))], ids=str)
def test_products_and_gradients_are_jax_own(shapes):
    x, weight = drawn(*shapes)
    np.testing.assert_allclose(multiply(x, weight), jnp.dot(x, weight), rtol=1e-6)
    for ours, plain in zip(gradient(multiply, x, weight), gradient(jnp.dot, x, weight), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5)


def test_the_weights_gradient_comes_as_they_lie():
    """JAX's own ends in a transpose, which the test sees."""

    def transposes(product):
        x, weight = drawn(*GROWING)
        pulled = jax.make_jaxpr(lambda x, weight, e: jax.vjp(product, x, weight)[1](e)[1])(x, weight, x @ weight)
        return sum(equation.primitive.name == "transpose" for equation in pulled.eqns)

    assert transposes(multiply) == 0
    assert transposes(jnp.dot) == 1


@pytest.mark.parametrize("shapes", [GROWING, SHRINKING, ((7, 5), (5, 7)), ((1, 5), (5, 7))], ids=str)
def test_coarse_products_round_their_factors_there_and_back_and_nothing_else(shapes):
    def rounded(x):
        return np.asarray(x.astype(jnp.bfloat16), np.float64)

    x, weight = drawn(*shapes)
    answer = coarse(x, weight)
    assert answer.dtype == jnp.float32
    np.testing.assert_allclose(answer, rounded(x) @ rounded(weight), rtol=1e-5, atol=1e-5)
    assert distance(answer, x @ weight) > 1e-4
    (error,) = drawn(answer.shape)
    entry, slope = jax.vjp(coarse, x, weight)[1](error)
    np.testing.assert_allclose(entry, rounded(error) @ rounded(weight).T, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(slope, rounded(x).T @ rounded(error), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "outputs", "used"), [(WIDE, WIDE, coarse), (WIDE - 1, 99, multiply), (99, 3, multiply)]
)
def test_wide_products_are_coarse_and_others_exact(inputs, outputs, used):
    x, weight = drawn((6, inputs), (inputs, outputs))
    np.testing.assert_array_equal(multiply_coarsely(x, weight), used(x, weight))
    jax.tree.map(np.testing.assert_array_equal, gradient(multiply_coarsely, x, weight), gradient(used, x, weight))


def test_many_members_multiply_as_each_alone():
    x, weight = drawn((3, 6, 5), (3, 5, 7))
    for product in (multiply, coarse):
        together = jax.vmap(lambda x, w, product=product: gradient(product, x, w))(x, weight)
        for member in range(3):
            for ours, alone in zip(together, gradient(product, x[member], weight[member]), strict=True):
                np.testing.assert_allclose(ours[member], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 5, 6])
def test_turning_is_transposing(rows):
    (x,) = drawn((rows, 4))
    np.testing.assert_array_equal(turned(x), x.T)
