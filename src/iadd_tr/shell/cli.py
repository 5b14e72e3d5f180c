"""The command line: train, evaluate, plot, study, bench."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from iadd_tr.settings import Algorithm, Settings
from iadd_tr.shell.errors import UserError
from iadd_tr.shell.options import parse


@dataclass(frozen=True)
class Train:
    """Train a batch of runs into a folder, or go on with one."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    out: Path | None = None
    """The run folder; runs/TASK-ALGO where not given."""
    resume: Path | None = None
    """Go on with this run folder."""
    print_config: bool = False
    """Show the resolved settings and stop."""
    wandb: bool = False
    """Also log to Weights & Biases (extra `wandb`)."""


@dataclass(frozen=True)
class Evaluate:
    """Print the returns of a run folder's policies."""

    run: tyro.conf.Positional[Path]
    episodes: int = 10
    video: Path | None = None
    """Also record one episode to this file."""
    video_run: int = 0
    """Which run of the batch the video shows."""


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of run folders and print their table, also while they are being written."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    out: Path = Path("curves.png")
    measure: Literal["return", "discounted_return", "episode_steps"] = "return"
    """What of the evaluation episodes: the discounted return is what agents are trained for."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; a mistake the user can mend ends with one sentence and exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {"train": train, "evaluate": evaluate, "plot": plot, "study": study, "bench": bench}
    if not arguments or arguments[0] not in commands:
        usage = "usage: iadd-tr {train,evaluate,plot,study,bench} …   (iadd-tr COMMAND --help says more)"
        print(usage, file=sys.stdout if arguments[:1] in ([], ["--help"], ["-h"]) else sys.stderr)
        raise SystemExit(0 if arguments[:1] in (["--help"], ["-h"]) else 2)
    from iadd_tr.tasks.task import TaskError

    try:
        try:
            commands[arguments[0]](arguments[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (UserError, TaskError) as error:
        print(f"iadd-tr: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        again = "iadd-tr train --resume FOLDER" if arguments[0] == "train" else "the same command"
        print(f"iadd-tr: stopped; go on with: {again}", file=sys.stderr)
        raise SystemExit(130) from None


def train(arguments: list[str]) -> None:
    from iadd_tr.shell import config, machine
    from iadd_tr.shell import run as runs

    options = parse_train(arguments)
    config.check(options.settings)
    if options.print_config:
        print(json.dumps(config.to_json(options.settings), indent=2))
        return
    machine.set_up()
    if options.resume is not None:
        folder = runs.resume(options.settings, options.resume, options.wandb)
    else:
        name = f"{options.settings.task.replace(':', '-')}-{options.settings.algo}"
        folder = runs.start(options.settings, options.out or Path("runs") / name, options.wandb)
    print(
        f"\nThe run is in {folder}\n"
        f"  iadd-tr plot {folder} --out curves.png      draw its learning curve\n"
        f"  iadd-tr evaluate {folder} --episodes 10     evaluate its policy\n"
        f"  tensorboard --logdir {folder}               look closer (pip install tensorboard)"
    )


def parse_train(arguments: list[str]) -> Train:
    """Options over the preset of the task and algorithm they name, or over the settings of a run to resume."""
    from iadd_tr.shell import config
    from iadd_tr.tasks import presets

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--task", default="hopper")
    first.add_argument("--algo", default="iadd-tr")
    first.add_argument("--resume", type=Path)
    named, _ = first.parse_known_args(arguments)
    if named.resume is not None:
        settings = config.load(named.resume)
    elif named.algo not in get_args(Algorithm):
        raise UserError(f"There is no algorithm '{named.algo}'; take one of {', '.join(get_args(Algorithm))}.")
    else:
        settings = presets.settings(named.task, named.algo)
    return parse(Train, arguments, "train", default=Train(settings))


def evaluate(arguments: list[str]) -> None:
    options = parse(Evaluate, arguments, "evaluate")
    if options.episodes < 1:
        raise UserError("--episodes must be 1 or more.")
    from iadd_tr.shell import machine
    from iadd_tr.shell.replays import Player, no_renderer
    from iadd_tr.tasks.task import TaskError

    machine.set_up()
    try:
        player = Player(options.run)
    except TaskError as error:  # MuJoCo looks for its renderer when it is imported
        raise no_renderer(str(error)) if options.video and os.environ.get("MUJOCO_GL") else error from None
    rows = player.rows
    if not 0 <= options.video_run < len(rows):
        raise UserError(f"--video-run must lie between 0 and {len(rows) - 1}.")
    print(f"{options.run}, after {player.epoch} epochs, {options.episodes} episodes each")
    for row, returns in zip(rows, player.returns(options.episodes), strict=True):
        scalars = "  ".join(f"{f.name} {getattr(row, f.name):g}" for f in fields(row))
        print(f"  {scalars}  return {returns.mean():.1f} ± {returns.std():.1f}")
    if options.video is not None:
        total = player.video(options.video, options.video_run)
        print(f"  {options.video}: one episode, return {total:.1f}")


def plot(arguments: list[str]) -> None:
    from iadd_tr.report import curves
    from iadd_tr.shell.output import show

    options = parse(Plot, arguments, "plot")
    lines = gather(options.runs)
    if not lines:
        raise UserError("These folders hold no finished epoch yet; wait for the first one.")
    without = sorted({line["folder"] for line in lines if options.measure not in line})
    if without:
        raise UserError(f"There is no {options.measure} in {', '.join(without)}, written by an earlier version.")
    try:
        curves.draw(lines, options.out, options.measure)
    except (OSError, ValueError) as error:
        raise UserError(
            f"Cannot write '{options.out}' ({error}); give a .png, .pdf or .svg in a writable folder."
        ) from None
    measured = options.measure.replace("_", " ")
    columns = ("interquartile mean (95 %)", "last epoch", "last ten", "all", "mean ± deviation, last", "setbacks")
    rows = curves.table(lines, options.measure)
    for task in dict.fromkeys(row["task"] for row in rows):
        show(f"{task}, {measured}", columns, [_cells(row) for row in rows if row["task"] == task])
    print(f"A setback is an epoch whose {measured} lost more than {curves.SETBACK} of what its run had gained.")
    print(options.out)


def gather(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """The metrics of run folders, each line with its folder and with the first of the folders that are alike."""
    from iadd_tr.shell import config
    from iadd_tr.shell.runlog import read_metrics

    firsts: dict[tuple[str, str], str] = {}
    lines = []
    for folder in folders:
        variant = config.variant(config.read(folder).get("settings", {}))
        for line in read_metrics(folder):
            first = firsts.setdefault((line["algorithm"], variant), str(folder))
            lines.append(line | {"folder": str(folder), "variant": first})
    return lines


def _cells(row: dict[str, Any]) -> list[str]:
    """A row of the table of returns as text."""
    if not row["steps"]:
        return [row["name"], "no epoch that all runs have reached"]
    middles = [
        f"{part['interquartile_mean']:.0f} ({part['low']:.0f} to {part['high']:.0f})"
        for part in (row["last"], row["last_ten"], row["all"])
    ]
    last = f"{row['last']['mean']:.0f} ± {row['last']['deviation']:.0f}"
    name = f"{row['name']}: {row['runs']} × {row['steps']:,}"
    return [name, *middles, last, f"{row['setbacks']} of {row['evaluations']}"]


def study(arguments: list[str]) -> None:
    from iadd_tr.shell import machine, studies

    if not arguments or arguments[0] not in studies.STUDIES:
        raise UserError(f"Name a study: iadd-tr study {{{','.join(studies.STUDIES)}}} --out DIR.")
    machine.set_up()
    kind, command = studies.STUDIES[arguments[0]]
    command(parse(kind, arguments[1:], f"study {arguments[0]}"))


def bench(arguments: list[str]) -> None:
    from iadd_tr.shell import bench

    bench.bench(parse(bench.Bench, arguments, "bench"))


if __name__ == "__main__":
    main()
