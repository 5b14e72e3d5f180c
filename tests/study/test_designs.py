import jax
import jax.numpy as jnp
import pytest

from iadd_tr.dynamics import stages
from iadd_tr.settings import Model
from iadd_tr.study import designs
from iadd_tr.study.designs import BASES, DESIGNS, matched_width, parameter_count, sized
from iadd_tr.tasks import presets

SIZES = {"hopper": (11, 3), "walker2d": (17, 6)}
NAMES = {"hopper": tuple(DESIGNS), "walker2d": ("direct", "smooth", "no-path", "latent-0")}


def test_parameters_are_those_of_the_layers():
    observations, actions, width = 11, 3, 200
    layers = [(14, width), (width, width), (width, width), (width, width), (width, 2 * 12 + 1)]
    count = sum(inputs * outputs + outputs for inputs, outputs in layers)
    assert parameter_count(Model(), False, observations, actions) == count
    member = stages.init(jax.random.key(0), Model(), observations, actions, jnp.zeros(actions))
    layers = (*member.intervention.layers, *member.evolution.layers, member.path)
    count = sum(layer.weight.size + layer.bias.size for layer in layers)
    assert parameter_count(Model(), True, observations, actions) == count


@pytest.mark.parametrize("task", SIZES)
def test_every_design_is_as_large_as_the_monolith(task):
    target = parameter_count(Model(), False, *SIZES[task])
    for name in NAMES[task]:
        design = DESIGNS[name]
        model = sized(design, Model(), *SIZES[task])
        count = parameter_count(model, design.two_stage, *SIZES[task])
        assert abs(count / target - 1) < 0.02, name
    assert sized(DESIGNS["monolith-normal"], Model(), *SIZES[task]) == Model()


@pytest.mark.parametrize("two_stage", [False, True])
def test_no_other_width_comes_closer(two_stage):
    model = Model(width=30)

    def distance(width):
        return abs(parameter_count(Model(width=width), two_stage, 5, 2) - 3000)

    found = matched_width(model, two_stage, 5, 2, 3000)
    assert distance(found) == min(distance(width) for width in range(found - 4, found + 5))


def test_quick_leaves_alone_what_was_asked_for():
    study = designs.quick(designs.Study(seeds=3, tasks=("walker2d",)))
    assert (study.seeds, study.tasks, study.sizes) == (3, ("walker2d",), designs.QUICK["sizes"])


def test_designs_are_compared_with_mbpos_member_and_with_one_that_has_iadds_targets():
    plain, normal = (DESIGNS[name] for name in BASES)
    assert (plain.algo, plain.changes, plain.zeros) == ("mbpo", {"normalise_target": False}, True)
    assert (normal.algo, normal.changes, normal.zeros) == ("mbpo", {}, True)
    assert presets.settings("hopper", "iadd").model == presets.settings("hopper", "mbpo").model == Model()
    assert Model().normalise_target
