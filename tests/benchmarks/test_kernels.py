import kernels


def event(name, start, duration, stream):
    return {"ph": "X", "pid": 1, "tid": stream, "name": name, "ts": start, "dur": duration}


def label(kind, pid, tid, name):
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


EVENTS = [
    label("process_name", 1, 0, "/device:GPU:0"),
    label("process_name", 2, 0, "/host:CPU"),
    label("thread_name", 1, 7, "Stream #7"),
    label("thread_name", 1, 8, "XLA Ops"),
    label("thread_name", 2, 7, "Stream of tasks"),
    event("gemm", 100.0, 30.0, 7),
    event("add", 130.0, 10.0, 7),
    event("gemm", 150.0, 50.0, 7),
    event("the same again, as the compiler names it", 100.0, 100.0, 8),
    {**event("python", 0.0, 500.0, 7), "pid": 2},
]


def test_only_kernels_on_the_devices_streams_count():
    assert [found["name"] for found in kernels.on_device(EVENTS)] == ["gemm", "add", "gemm"]


def test_times_are_given_for_a_unit_of_work_and_shares_of_the_busy_time():
    first, *rest = kernels.report("step", kernels.on_device(EVENTS), 2, 1).splitlines()
    assert first == "step: 50.0 us, kernels 45.0 us in 1.5 launches"
    assert [line.split() for line in rest] == [["40.00", "us", "88.9", "%", "1.00", "x", "gemm"]]


def test_where_there_is_no_gpu_a_cpus_operations_count_but_no_loops_around_them():
    names = ["dot.1", "while.2", "call.3", "fusion"]
    own = [{**event(name, 10.0 * i, 5.0, 3), "args": {"hlo_op": name}} for i, name in enumerate(names)]
    others = [label("process_name", 1, 0, "/host:CPU"), event("python", 0.0, 500.0, 7)]
    assert [found["name"] for found in kernels.on_device([*others, *own])] == ["dot.1", "fusion"]
