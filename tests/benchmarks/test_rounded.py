import jax
import rounded

from iadd_tr.agent import sac
from iadd_tr.nets import GLOROT_UNIFORM, mlp
from iadd_tr.products import multiply_coarsely


def test_agents_multiply_with_rounded_factors_whatever_computes(monkeypatch):
    monkeypatch.setattr(sac, "in_training", sac.in_training)  # puts back what is changed here
    rounded.round_products()
    trained = sac.in_training(mlp(jax.random.key(0), [3, 4, 1], jax.nn.relu, GLOROT_UNIFORM))
    assert trained.multiply is multiply_coarsely
