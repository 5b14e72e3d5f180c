import numpy as np
import steps


def test_a_timeline_begins_in_the_middle_of_a_trace_and_follows_the_clock():
    events = [{"name": f"kernel {i}", "ts": 10.0 * i, "dur": 2.5} for i in (3, 0, 2, 1)]
    assert [line.split() for line in steps.timeline(events).splitlines()] == [
        ["0.00", "2.50", "kernel", "2"],
        ["10.00", "2.50", "kernel", "3"],
    ]


def test_random_rows_are_as_many_and_as_wide_as_hoppers():
    shapes = {name: np.shape(column) for name, column in steps.random_rows(7).items()}
    assert shapes == {
        "observation": (7, 11),
        "next_observation": (7, 11),
        "action": (7, 3),
        "log_density": (7,),
        "reward": (7,),
        "discount": (7,),
    }
