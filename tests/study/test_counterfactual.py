import jax.numpy as jnp
import numpy as np

from iadd_tr.algorithm.collect import everything
from iadd_tr.study import counterfactual
from iadd_tr.study.designs import DESIGNS, Study
from iadd_tr.tasks.task import resolve
from iadd_tr.types import Transition


def marked(first: int, count: int) -> Transition:
    """Rows that carry their number as the reward."""
    number = jnp.arange(first, first + count, dtype=jnp.float32)
    return Transition(
        jnp.zeros((count, 2)), jnp.zeros((count, 1)), jnp.zeros(count), number, jnp.zeros((count, 2)), jnp.ones(count)
    )


def test_zero_rows_stand_apart_from_the_others_and_are_hidden_from_designs_without_them():
    real, zeros, sizes = marked(0, 9), marked(100, 4), jnp.array([7, 3])

    def rewards(buffer):
        return np.asarray(buffer.rows.reward[: int(buffer.size)]).tolist()

    for name in ("monolith", "monolith-no-zeros", "smooth", "iadd", "no-zeros"):
        memory = counterfactual.remember(DESIGNS[name], 20, real, zeros, sizes)
        assert rewards(memory.real) == list(range(7))
        assert memory.real.rows.reward.size == 20
        assert (memory.zeros is None) == name.endswith("no-zeros")
        assert rewards(everything(memory)) == [*range(7), *([] if memory.zeros is None else [100, 101, 102])]


def test_agents_take_as_many_steps_as_asked_and_keep_their_zero_rows():
    problem = counterfactual.agents(Study(warm_up=300, epoch_length=100, seeds=2), resolve("hopper"), 1000)
    loop = problem.settings.loop
    assert loop.warm_up + loop.epochs * loop.epoch_length == 1000
    assert problem.settings.stores_zeros
    assert not problem.settings.two_stage


def test_bins_hold_equally_many_rows_and_their_root_mean_squares():
    random = np.random.default_rng(0)
    surprise, squared = random.normal(size=(2, 3, 80)), random.exponential(size=(2, 3, 80))
    rows = counterfactual.binned(surprise, squared)
    assert len(rows) == 2 * counterfactual.BINS
    order = np.sort(surprise.ravel())
    size = order.size // counterfactual.BINS
    for row in rows:
        own = order[row["bin"] * size : (row["bin"] + 1) * size]
        assert abs(row["surprise"] - np.median(own)) < 1e-9
        kept = [q for x, q in zip(surprise[row["seed"] - 1].ravel(), squared[row["seed"] - 1].ravel(), strict=True)
                if own[0] <= x <= own[-1]]  # fmt: skip
        assert abs(row["error"] - np.sqrt(np.mean(kept))) < 1e-9


def test_designs_have_their_own_member_at_equal_size():
    study = Study(width=32, seeds=2)
    problems = {name: counterfactual.problem_of(study, "hopper", DESIGNS[name]) for name in ("monolith", "direct")}
    assert not problems["monolith"].settings.two_stage
    assert problems["monolith"].settings.model.width == 32
    model = problems["direct"].settings.model
    assert (model.form, model.depths, model.evolve_from) == ("direct", (2, 2), "state")
    assert problems["direct"].settings.zero_ratios == (0.02,)  # at zero it would be given no generated rows
