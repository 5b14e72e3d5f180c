import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from iadd_tr import devices
from iadd_tr.nets import GLOROT_UNIFORM, TRUNCATED_NORMAL, in_training, mlp, zero_last
from iadd_tr.products import multiply, multiply_coarsely

SIZES = [5, 70, 40, 3]
INITIALISERS = {"glorot": GLOROT_UNIFORM, "truncated": TRUNCATED_NORMAL}


def weights(initialiser, sizes=SIZES, seed=0):
    return [np.asarray(layer.weight) for layer in mlp(jax.random.key(seed), sizes, jax.nn.relu, initialiser).layers]


@pytest.mark.parametrize("initialiser", INITIALISERS.values(), ids=INITIALISERS)
def test_layers_follow_the_sizes_and_start_without_bias(initialiser):
    net = mlp(jax.random.key(0), SIZES, jax.nn.relu, initialiser)
    assert [layer.weight.shape for layer in net.layers] == [(5, 70), (70, 40), (40, 3)]
    assert [layer.bias.shape for layer in net.layers] == [(70,), (40,), (3,)]
    assert not any(layer.bias.any() for layer in net.layers)


def test_glorot_weights_are_uniform_up_to_the_root_of_six_over_both_fans():
    for weight, bound in zip(
        weights(GLOROT_UNIFORM), [(6 / 75) ** 0.5, (6 / 110) ** 0.5, (6 / 43) ** 0.5], strict=True
    ):
        assert stats.kstest(weight.ravel(), "uniform", args=(-bound, 2 * bound)).pvalue > 1e-3
        assert 0.9 * bound < np.abs(weight).max() <= bound


def test_model_weights_are_normal_with_deviation_half_the_root_of_the_fan_in_cut_at_two():
    for weight, fan_in in zip(weights(TRUNCATED_NORMAL), SIZES[:-1], strict=True):
        scale = 0.5 / fan_in**0.5
        assert stats.kstest(weight.ravel(), "truncnorm", args=(-2, 2, 0, scale)).pvalue > 1e-3
        assert 1.5 * scale < np.abs(weight).max() <= 2 * scale * (1 + 1e-6)
    wide = weights(TRUNCATED_NORMAL, [400, 400])[0]
    assert wide.std() == pytest.approx(stats.truncnorm(-2, 2).std() * 0.5 / 20, rel=0.01)


def test_no_two_layers_and_no_two_keys_share_their_draw():
    first, second = weights(TRUNCATED_NORMAL, [9, 9, 9])
    (other, _) = weights(TRUNCATED_NORMAL, [9, 9, 9], seed=1)
    assert not np.any(first == second)
    assert not np.any(first == other)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 4, 5)])
def test_a_network_is_what_plain_numpy_computes(shape):
    net = mlp(jax.random.key(0), SIZES, jax.nn.relu, GLOROT_UNIFORM)
    leaves, structure = jax.tree.flatten(net)
    random = np.random.default_rng(0)
    net = jax.tree.unflatten(structure, [jnp.asarray(random.normal(size=x.shape), jnp.float32) for x in leaves])
    x = random.normal(size=shape)
    expected = x
    for index, layer in enumerate(net.layers):
        expected = np.einsum("...i,ij->...j", expected if index == 0 else np.maximum(expected, 0), layer.weight)
        expected = expected + np.asarray(layer.bias)
    np.testing.assert_allclose(net(jnp.asarray(x, jnp.float32)), expected, rtol=1e-4, atol=1e-3)


def test_a_network_with_its_last_layer_zeroed_answers_zero_and_still_learns():
    net = zero_last(mlp(jax.random.key(0), SIZES, jax.nn.relu, GLOROT_UNIFORM))
    x = jax.random.normal(jax.random.key(1), (20, 5))
    assert not net(x).any()
    assert net.layers[0].weight.any()
    gradient = jax.jit(jax.grad(lambda n: jnp.sum(n(x))))(net)
    assert gradient.layers[-1].weight.any()


@pytest.mark.parametrize(
    ("cpu", "halves", "used"),
    [(True, True, multiply_coarsely), (True, False, multiply), (False, True, multiply), (False, False, multiply)],
)
def test_training_rounds_on_a_cpu_that_multiplies_bfloat16_alone(monkeypatch, cpu, halves, used):
    monkeypatch.setattr(devices, "on_cpu", lambda: cpu)
    monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: halves)
    trained = in_training({"net": mlp(jax.random.key(0), SIZES, jax.nn.relu, GLOROT_UNIFORM), "other": jnp.ones(2)})
    assert trained["net"].multiply is used
    assert trained["other"].tolist() == [1.0, 1.0]
