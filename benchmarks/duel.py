"""How many times as fast this version is as another one of this library: both are asked in turns, since a machine is
faster now and slower then.

python benchmarks/duel.py step OTHER/src [--runs 1] [--rounds 9] [--out runs/duel.json]

It compares a gradient step of an ensemble, or an update with TR (update in place of step); OTHER is another checkout.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROWS = 12_000  # of the replay that an ensemble is fitted to
OURS = Path(__file__).parent.parent / "src"


def work(part: str, runs: int) -> None:
    """Time one call whenever a line comes in."""
    from iadd_tr.shell import machine

    machine.use_cores()
    import jax
    from kernels import a_fit, an_update

    call, units = an_update(runs) if part == "update" else a_fit(runs, ROWS)
    jax.block_until_ready(call())
    for _ in sys.stdin:
        start = time.perf_counter()
        jax.block_until_ready(call())
        print(1e3 * (time.perf_counter() - start) / units, flush=True)


def worker(source: Path, part: str, runs: int) -> subprocess.Popen:
    """A process that computes with the version that lies there."""
    command = [sys.executable, __file__, part, "--runs", str(runs), "--work"]
    environment = os.environ | {"PYTHONPATH": str(source.resolve())}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def asked(process: subprocess.Popen) -> float:
    """Milliseconds of one more call."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return float(process.stdout.readline())


def duel(part: str, other: Path, runs: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of both in every round; the first call of each is not counted."""
    processes = [worker(source, part, runs) for source in (other, OURS)]
    found = [[asked(process) for process in processes] for _ in range(rounds + 1)][1:]
    for process in processes:
        process.communicate()
    ratios = [before / after for before, after in found]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"part": part, "runs": runs, "milliseconds": found, "times_as_fast": middle, "quartiles": [low, high]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("update", "step"))
    parser.add_argument("other", type=Path, nargs="?", default=OURS)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.part, options.runs)
        return
    found = duel(options.part, options.other, options.runs, options.rounds)
    before, after = (statistics.median(times) for times in zip(*found["milliseconds"], strict=True))
    low, high = found["quartiles"]
    print(f"{options.part}, runs: {options.runs}: {before:.3f} ms, here {after:.3f} ms")
    print(f"{found['times_as_fast']:.3f} times as fast (quartiles {low:.3f} to {high:.3f})")
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
