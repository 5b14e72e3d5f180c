import pytest
from hypothesis import given
from hypothesis import strategies as st

from iadd_tr.settings import Loop, imagined_limit, override, rollout_length
from iadd_tr.tasks import presets

TABLE_2 = {  # epochs, updates per step, horizon at the last epoch, width
    "halfcheetah": (90, 40, 1, 200),
    "walker2d": (200, 20, 1, 200),
    "ant": (200, 20, 25, 200),
    "hopper": (60, 20, 7, 200),
    "humanoid": (200, 20, 16, 400),
}


@given(
    x=st.integers(1, 10), more=st.integers(0, 20), a=st.integers(0, 50), span=st.integers(1, 100), e=st.integers(0, 300)
)
def test_schedule_is_the_appendix_formula(x, more, a, span, e):
    y, b = x + more, a + span
    expected = min(max(x + (e - a) * (y - x) / (b - a), x), y)
    assert rollout_length(Loop(horizon=(x, y, a, b)), e) == int(expected)


@pytest.mark.parametrize("task", TABLE_2)
def test_presets_are_table_2(task):
    epochs, updates, horizon, width = TABLE_2[task]
    settings = presets.settings(task, "iadd-tr")
    assert (settings.loop.epochs, settings.loop.updates_per_step) == (epochs, updates)
    assert rollout_length(settings.loop, epochs - 1) == horizon
    assert settings.model.width == width


def test_table_1_but_for_the_share_of_zero_actions():
    settings = presets.settings("hopper", "iadd-tr")
    assert (settings.loop.epoch_length, settings.loop.rollouts_per_step, settings.model.members) == (1000, 400, 7)
    assert (settings.model.model_rate, settings.agent.agent_rate) == (1e-3, 3e-4)
    assert (settings.zero_ratios, settings.betas) == ((0.02,), (1.0,))


def test_ablation_switches_one_thing_at_a_time():
    mbpo, mbpo_tr, iadd, iadd_tr = (presets.settings("hopper", a) for a in ("mbpo", "mbpo-tr", "iadd", "iadd-tr"))
    assert [s.betas for s in (mbpo, mbpo_tr, iadd, iadd_tr)] == [(0.0,), (1.0,), (0.0,), (1.0,)]
    assert [s.zero_ratios for s in (mbpo, mbpo_tr, iadd, iadd_tr)] == [(0.0,), (0.0,), (0.02,), (0.02,)]
    assert mbpo.loop == mbpo_tr.loop == iadd.loop == iadd_tr.loop
    assert mbpo.model == iadd.model


def test_imagined_buffer_of_ant_ends_with_ten_million_rows():
    loop = presets.settings("ant", "mbpo").loop
    assert imagined_limit(loop, rollout_length(loop, 199)) == 10_000_000


def test_overriding_reaches_every_group_and_refuses_strangers():
    settings = override(presets.settings("hopper", "mbpo"), epochs=3, width=8, hidden=9, runs=2)
    assert (settings.loop.epochs, settings.model.width, settings.agent.hidden, settings.runs) == (3, 8, 9, 2)
    with pytest.raises(TypeError, match="widht"):
        override(settings, widht=8)
