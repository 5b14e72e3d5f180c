"""Compare with what one would take instead, in one run on one machine: SBX, Stable-Baselines3 and mbrl-lib.

    python benchmarks/peers.py

Everything runs on the CPU. Each peer gets its own environment; pip's own settings say where packages come from, and so
whether PyTorch comes with CUDA (which nothing here uses) or without.
"""

import datetime
import json
import os
import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import peer_environments
import peer_report
import tyro
from peer_contest import Contest, Entrant, hold

from iadd_tr.shell.errors import UserError
from iadd_tr.shell.machine import cores
from iadd_tr.shell.output import make_folder, progress, show
from iadd_tr.shell.runlog import versions

HERE = Path(__file__).parent
OURS = Entrant(peer_report.OURS, "ours.py")
SAC = Contest(
    "sac",
    (
        OURS,
        Entrant("SBX", "stable_baselines.py", "sbx"),
        Entrant("Stable-Baselines3", "stable_baselines.py", "sb3"),
        Entrant(f"{peer_report.OURS}, a run on each core", "ours.py", runs=cores()),
    ),
    warm_up=1000,
    settle=20,
    block=50,
    rounds=7,
    fit_every=250,
)
MBPO = Contest(  # blocks begin a few steps before a fit, so that each holds one
    "mbpo",
    (OURS, Entrant("mbrl-lib", "mbrl_mbpo.py", "mbrl")),
    warm_up=5000,
    settle=240,
    block=250,
    rounds=3,
    fit_every=250,
)


@dataclass(frozen=True)
class Options:
    """Compare updates and environment steps per second with those of other libraries."""

    cache: Path = HERE / ".peers"
    """Where the peers' environments and the workers' logs are kept."""
    out: Path = HERE / "peers.json"
    """The raw numbers; the tables go beside them, as .md."""
    quick: bool = False
    """Blocks too short to measure anything, to see that everything works."""


def main() -> None:
    options = tyro.cli(Options)
    try:
        result = compare(options)
        make_folder(options.out.parent)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(peer_report.markdown(result))
    except UserError as error:
        raise SystemExit(f"peers: {error}") from None
    for table in peer_report.tables(result):
        show(*table)
    print(f"{options.out} and {options.out.with_suffix('.md').name} are written.")


def compare(options: Options) -> dict[str, Any]:
    """Both contests, and where and with what they were held."""
    logs = make_folder(options.cache / "logs")
    names = peer_environments.REQUIREMENTS
    pythons = {name: peer_environments.python_of(name, options.cache, print) for name in names}
    result = {"date": f"{datetime.date.today()}", "command": command(), "commit": versions()["commit"]}
    result |= {"machine": machine()}
    for contest in quick() if options.quick else (SAC, MBPO):
        with progress(contest.algo, (1 + contest.rounds) * len(contest.entrants)) as advance:
            result[contest.algo] = hold(contest, pythons, logs, advance)
    return result


def quick() -> tuple[Contest, Contest]:
    """The same contests at a small size."""
    return (
        replace(SAC, warm_up=300, settle=2, block=3, rounds=2),
        replace(MBPO, warm_up=400, settle=5, block=10, rounds=2, fit_every=10),
    )


def command() -> str:
    return " ".join(["python", "benchmarks/peers.py", *sys.argv[1:]])


def machine() -> dict[str, Any]:
    """The processor, the system and the load before we started."""
    return {
        "cpu": processor(),
        "cores": cores(),
        "system": platform.platform(),
        "load": round(os.getloadavg()[0], 2),
    }


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
