"""Workers that do the same work by turns, each in a process and an environment of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from peer_workers.clock import LEAD

from iadd_tr.shell.errors import UserError

WORKERS = Path(__file__).parent / "peer_workers"


@dataclass(frozen=True)
class Entrant:
    """Who takes part: a worker, the environment it runs in (ours where none is named) and its runs at once."""

    name: str
    worker: str
    environment: str | None = None
    runs: int = 1


@dataclass(frozen=True)
class Contest:
    """The same work for every entrant."""

    algo: str
    entrants: tuple[Entrant, ...]
    warm_up: int
    """Steps of uniform actions."""
    settle: int
    """Further steps before the first block, in which everything is compiled and the first model is fitted."""
    block: int
    """Steps that are timed at once."""
    rounds: int
    fit_every: int
    updates_per_step: int = 20

    def plan(self, entrant: Entrant) -> dict[str, Any]:
        """What a worker is told."""
        steps = self.settle + 1 + self.rounds * (self.block + LEAD)
        return {
            "algo": self.algo,
            "runs": entrant.runs,
            "updates_per_step": self.updates_per_step,
            "warm_up": self.warm_up,
            "settle": self.settle,
            "block": self.block,
            "fit_every": self.fit_every,
            "length": -(-steps // self.fit_every) * self.fit_every,
        }


class Worker:
    """A process that times a block whenever it is asked to."""

    def __init__(self, python: Path, entrant: Entrant, plan: dict[str, Any], log: Path):
        self.name, self.log = entrant.name, log
        hidden = {} if entrant.environment is None else {"PYTHONPATH": ""}  # ours alone may find our sources there
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                [python, WORKERS / entrant.worker, json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"JAX_PLATFORMS": "cpu"} | hidden,
            )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.terminate()
        self.process.communicate()

    def block(self) -> dict[str, float]:
        """Have a block timed."""
        assert self.process.stdin is not None
        try:
            print(file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise self.gone() from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line of JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.gone()
        return json.loads(line)

    def gone(self) -> UserError:
        lines = self.log.read_text().strip().splitlines() or ["it said nothing"]
        return UserError(f"The worker of {self.name} stopped ({lines[-1]}); the whole story is in '{self.log}'.")


def hold(contest: Contest, pythons: dict[str, Path], logs: Path, advance: Callable[[], None]) -> dict[str, Any]:
    """Start the workers one after the other, then let them take turns; what each is, and its blocks by round."""
    with ExitStack() as stack:
        workers, entrants, rounds = [], {}, []
        for entrant in contest.entrants:
            python = Path(sys.executable) if entrant.environment is None else pythons[entrant.environment]
            log = logs / f"{contest.algo}-{entrant.environment or 'ours'}-{entrant.runs}.log"
            worker = stack.enter_context(Worker(python, entrant, contest.plan(entrant), log))
            entrants[entrant.name] = worker.answer() | {"plan": contest.plan(entrant)}
            worker.answer()  # ready
            workers.append(worker)
            advance()
        for _ in range(contest.rounds):
            rounds.append({})
            for worker in workers:
                rounds[-1][worker.name] = worker.block()
                advance()
        return {"entrants": entrants, "rounds": rounds}
