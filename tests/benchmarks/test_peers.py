import io
import json

import peer_report
import pytest
from peer_workers import clock


def block(seconds, updates=1000, steps=50, **more):
    return {"steps": steps, "seconds": seconds, "processor_seconds": 1.5 * seconds, "updates": updates, **more}


def fit_block(seconds, fit_seconds, gradient_steps):
    more = {"fit_seconds": fit_seconds, "gradient_steps": gradient_steps, "fit_epochs": 10.0}
    return block(seconds, 5000, 250, **more, rollout_seconds=1.0, imagined_rows=100_000)


def test_ratios_are_taken_within_a_round_so_that_drift_cancels():
    rounds = [{"iadd-tr": block(1.0), "SBX": block(2.0)}, {"iadd-tr": block(10.0), "SBX": block(20.0)}]
    _, _, rows = peer_report.speeds(rounds)
    assert rows[1] == ("SBX", "275 (50 – 500)", "1.50 (1.50 – 1.50)", "2.00 (2.00 – 2.00)")


def test_a_peer_whose_fit_stopped_later_is_also_compared_at_our_number_of_gradient_steps():
    rounds = [{"iadd-tr": fit_block(20.0, 5.0, 100), "mbrl-lib": fit_block(100.0, 40.0, 400)}]
    name, pace, _, as_run, equal = peer_report.paces(rounds)[2][1]
    assert (name, pace) == ("mbrl-lib", "0.400 (0.400 – 0.400)")
    assert as_run == "5.00 (5.00 – 5.00)"
    assert equal == "3.50 (3.50 – 3.50)"  # 60 s and a quarter of the fit against 20 s


def test_a_clock_counts_only_the_steps_and_the_work_between_its_two_readings(monkeypatch):
    ticks, done, answers = iter([10.0, 13.5]), {"updates": 0}, io.StringIO()
    monkeypatch.setattr(clock, "readings", lambda: {"seconds": next(ticks)})
    monkeypatch.setattr(clock.sys, "stdin", io.StringIO("\n"))
    tell = clock.Clock(answers, {"settle": 3, "block": 4}, lambda: dict(done))
    for _ in range(3 + clock.LEAD + 4):
        done["updates"] += 20
        tell()
    done["updates"] += 20
    with pytest.raises(clock.Finished):
        tell()
    ready, timed = map(json.loads, answers.getvalue().splitlines())
    assert ready == {"ready": True}
    assert timed == {"steps": 4, "seconds": 3.5, "updates": 80}
