"""Where a fit and an update spend their time: a GPU's kernels, or a CPU's operations, by their share, from the
profiler's trace.

python benchmarks/kernels.py [--runs 10] [--rows 20000] [--top 25]

On a CPU, JAX_NUM_CPU_DEVICES=1 taskset -c 0 before it leaves out what cores wait for each other.
"""

import argparse
import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from iadd_tr.bench import full, parts


def traced(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """What ran on the device during a call that has been compiled and run before."""
    jax.block_until_ready(call())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        (path,) = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return on_device(events)


def on_device(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of a trace that lie on a stream of a GPU; where there is none, a CPU's operations."""
    named = [event for event in events if event.get("ph") == "M"]
    devices = {e["pid"] for e in named if e["name"] == "process_name" and "GPU" in e["args"]["name"]}
    streams = {
        (e["pid"], e["tid"]) for e in named if e["name"] == "thread_name" and e["args"]["name"].startswith("Stream")
    }
    spans = [event for event in events if event.get("ph") == "X"]
    if not devices:
        return [event for event in spans if is_operation(event)]
    return [event for event in spans if event["pid"] in devices and (event["pid"], event["tid"]) in streams]


def is_operation(event: dict[str, Any]) -> bool:
    """Whether a CPU computes, in something else than a loop around other operations."""
    return "hlo_op" in event.get("args", {}) and not event["name"].startswith(("while", "call", "conditional"))


def report(title: str, events: list[dict[str, Any]], units: int, top: int) -> str:
    """The time of a unit of work, and the kernels that make it up."""
    begin = min(event["ts"] for event in events)
    span = max(event["ts"] + event["dur"] for event in events) - begin
    total, count = Counter(), Counter()
    for event in events:
        total[event["name"]] += event["dur"]
        count[event["name"]] += 1
    busy = sum(total.values())
    lines = [f"{title}: {span / units:.1f} us, kernels {busy / units:.1f} us in {len(events) / units:.1f} launches"]
    for name, time in total.most_common(top):
        lines.append(f"{time / units:9.2f} us {100 * time / busy:5.1f} % {count[name] / units:6.2f} x  {name[:90]}")
    return "\n".join(lines)


def a_fit(runs: int, rows: int) -> tuple[Callable[[], Any], int]:
    """A fit of a few epochs, and how many gradient steps it takes."""
    batch, state = parts.fitting(runs, "mbpo", full.collect("hopper", rows, 1))
    models = state.models

    def fit() -> Any:
        nonlocal models
        models = batch(parts.FIT_MAIN, 1, rows, models, state.memory)
        return models

    return fit, parts.STEP_EPOCHS * parts.steps_per_epoch(batch.problem, rows)


def an_update(runs: int) -> tuple[Callable[[], Any], int]:
    """The updates of one environment step with TR, and how many they are."""
    batch, improve = parts.improving(runs, 1.0, full.collect("hopper", 5000, 1))
    return improve, batch.problem.settings.loop.updates_per_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--top", type=int, default=25)
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, {options.runs} runs")
    fit, steps = a_fit(options.runs, options.rows)
    print(report("gradient step of the ensemble", traced(fit), steps, options.top))
    improve, updates = an_update(options.runs)
    print(report("update with TR", traced(improve), updates, options.top))


if __name__ == "__main__":
    main()
