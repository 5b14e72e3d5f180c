"""The command `iadd-tr bench`: each part in a process of its own, a table, and a file of what was measured."""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from iadd_tr.settings import override, unless_asked
from iadd_tr.shell.errors import UserError, require
from iadd_tr.shell.machine import cores
from iadd_tr.shell.output import progress, show

Part = Literal["update", "step", "fit", "rollout", "epoch", "start"]
Preset = Literal["halfcheetah", "hopper", "walker2d", "ant", "humanoid"]


@dataclass(frozen=True)
class Bench:
    """Time the parts of training on this machine, each beside the least it could take; on a CPU fewer of them."""

    parts: tuple[Part, ...] = ("update", "step", "fit", "rollout", "epoch", "start")
    tasks: tuple[Preset, ...] = ("halfcheetah", "hopper", "walker2d", "ant", "humanoid")
    """Presets whose epochs are timed."""
    update_runs: tuple[int, ...] = (1, 5, 10, 20)
    """Sizes of the batch whose updates are timed."""
    runs: int = 5
    """Runs in the batch of every other part."""
    rows: tuple[int, ...] = (5000, 60_000, 200_000)
    """Real rows of the fits."""
    horizons: tuple[int, ...] = (1, 25)
    """Imagined steps of the rollouts."""
    blocks: int = 2
    """Fits, with the steps up to the next one, that stand for an epoch."""
    fit_epochs: int | None = None
    """Epochs of each of these fits, as a run's metrics tell them. Early stopping decides where not given, and decides
    late, since models have been fitted less often here than in a run."""
    repeats: int = 10
    out: Path = Path("runs/bench.json")


CPU = Bench(
    parts=("update", "step", "fit", "rollout", "start"),
    tasks=("hopper",),
    update_runs=(1, 2, 5, 10),
    runs=1,
    rows=(5000,),
    repeats=5,
)
"""What a CPU does in ten minutes."""


class Reached(Exception):  # noqa: N818
    """The first step of the first epoch has been taken."""


def bench(options: Bench) -> None:
    """Measure, show and write."""
    require(
        [
            (
                min(*options.update_runs, *options.rows, *options.horizons) >= 1,
                "--update-runs, --rows and --horizons must be 1 or more",
            ),
            (
                min(options.runs, options.blocks, options.repeats) >= 1,
                "--runs, --blocks and --repeats must be 1 or more",
            ),
            (options.fit_epochs is None or options.fit_epochs >= 1, "--fit-epochs must be 1 or more"),
            (min(options.rows, default=1) <= 5_000_000, "--rows must be 5000000 or less"),
        ]
    )
    device = alone(device_kind)
    calls = plan(for_device(options, device))
    with progress("parts", len(calls)) as advance:
        lines = []
        for call in calls:
            lines += alone(run_part, *call)
            advance()
    write(options.out, device, lines)
    columns = ("part", "what", "measured", "floor", "ratio", "peak GiB")
    show(f"{device}{rated(lines)}", columns, [describe(line) for line in lines])
    print(f"{options.out} is written.")


def for_device(options: Bench, device: str) -> Bench:
    """On a CPU less is measured wherever nothing else than the defaults is asked for."""
    return unless_asked(options, **vars(CPU)) if device == "cpu" else options


def plan(options: Bench) -> list[tuple[str, tuple[Any, ...]]]:
    """The parts asked for: their functions' names and arguments; each preset stands alone."""
    workers = cores()
    table: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
        "update": [("updates", (count, options.repeats)) for count in options.update_runs],
        "step": [("gradient_steps", (options.runs, 20_000))],
        "fit": [("fits", (options.runs, options.rows, workers))],
        "rollout": [("rollouts", (options.runs, options.horizons, options.repeats))],
        "epoch": [
            ("epochs", (task, options.runs, options.blocks, workers, options.fit_epochs)) for task in options.tasks
        ],
        "start": [("starts", (options.runs,))],
    }
    return [call for part in options.parts for call in table[part]]


def alone(function: Callable, *arguments: Any) -> Any:
    """Call a function in a fresh process, so that memory and compilations of the parts do not mix."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def device_kind() -> str:
    import jax

    return jax.devices()[0].device_kind


def run_part(name: str, arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    """A part's lines, beside their floors where they have them; what the device can is measured right after it."""
    if name == "starts":
        return starts(*arguments)
    from iadd_tr.bench import floors, parts
    from iadd_tr.shell import machine

    machine.use_cores()
    lines = getattr(parts, name)(*arguments)
    rates = floors.measure()
    return [floors.beside(line, rates) for line in lines]


def starts(runs: int) -> list[dict[str, Any]]:
    """Seconds from the start of a process to its first step of the first epoch, without and with compiled programs."""
    from iadd_tr.bench.parts import several

    with tempfile.TemporaryDirectory() as cache:
        found = []
        for what in ("cold", "from the cache"):
            begun = time.time()
            seconds = alone(first_step, runs, cache) - begun
            found.append({"part": "start", "what": f"hopper, {several(runs)}, {what}", "milliseconds": 1e3 * seconds})
    return found


def first_step(runs: int, cache: str) -> float:
    """When the first epoch of Hopper is under way: its first step is taken after a fit that is cut short."""
    from iadd_tr.shell import machine
    from iadd_tr.stage import Problem
    from iadd_tr.tasks import presets
    from iadd_tr.tasks.task import resolve
    from iadd_tr.training import train

    os.environ["XDG_CACHE_HOME"] = cache
    machine.set_up()
    settings = override(presets.settings("hopper", "mbpo"), runs=runs, fit_epochs=1)
    problem = Problem(resolve("hopper"), settings)

    def reached() -> None:
        raise Reached

    try:
        next(train(problem, on_step=reached))
    except Reached:
        return time.time()
    raise UserError("The benchmark of the start took no step.")


def rated(lines: Sequence[dict[str, Any]]) -> str:
    """What the device could do beside the parts, at least and at most."""
    rates = [(line["operations_per_second"], line["bytes_per_second"]) for line in lines if "ratio" in line]
    if not rates:
        return ""
    (slow, fast), (few, many) = ((min(rate), max(rate)) for rate in zip(*rates, strict=True))
    return f": {slow / 1e12:.3g} to {fast / 1e12:.3g} TFLOP/s, {few / 1e9:.4g} to {many / 1e9:.4g} GB/s"


def describe(line: dict[str, Any]) -> Sequence[str]:
    """A line for people."""
    peak = line.get("peak_gib", float("nan"))
    return (
        line["part"],
        line["what"],
        duration(line["milliseconds"]),
        duration(line["floor"]) if "floor" in line else "",
        f"{line['ratio']:.2f}" if "ratio" in line else "",
        f"{peak:.2f}" if peak == peak else "",
    )


def duration(milliseconds: float) -> str:
    """A time in the unit it is read in."""
    if milliseconds < 100:
        return f"{milliseconds:.3g} ms"
    return f"{milliseconds / 1e3:.3g} s" if milliseconds < 6e5 else f"{milliseconds / 6e4:.1f} min"


def write(path: Path, device: str, lines: Sequence[dict[str, Any]]) -> None:
    """Everything measured, with where and when."""
    import jax

    record = {
        "date": date.today().isoformat(),
        "cores": cores(),
        "jax": jax.__version__,
        "device": device,
        "lines": [{name: value for name, value in line.items() if value == value} for line in lines],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"Cannot write '{path}' ({error.strerror}); give a writable file with --out.") from None
