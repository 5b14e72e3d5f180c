"""What every worker shares: it times blocks of environment steps when asked to, and answers with lines of JSON."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, TextIO

LEAD = 2  # steps after a pause that no clock counts: work under way at the pause must not come for free
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "XLA_FLAGS")


class Finished(Exception):  # noqa: N818 - the way out of a library's loop, not a mistake
    """No further block is asked for."""


class Clock:
    """Called once per environment step: after `settle` steps, each line on standard input times a block of them."""

    def __init__(self, answers: TextIO, plan: dict[str, Any], counts: Callable[[], dict[str, float]]):
        self.answers, self.settle, self.block, self.counts = answers, plan["settle"], plan["block"], counts
        self.steps = 0
        self._blocks = self._run()

    def __call__(self) -> None:
        self.steps += 1
        next(self._blocks)

    def _run(self) -> Iterator[None]:
        for _ in range(self.settle):
            yield
        say(self.answers, {"ready": True})
        for _ in sys.stdin:
            for _ in range(LEAD):
                yield
            before = self.counts() | readings()
            for _ in range(self.block):
                yield
            after = readings() | self.counts()
            say(self.answers, {"steps": self.block, **{name: after[name] - before[name] for name in after}})
        raise Finished


def readings() -> dict[str, float]:
    """The clock on the wall and the one of all cores that work for this process."""
    return {"seconds": time.perf_counter(), "processor_seconds": time.process_time()}


def begin(packages: tuple[str, ...], **threads: int) -> tuple[dict[str, Any], TextIO]:
    """The plan, and the channel for answers with versions and threads as its first line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to standard error
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    versions = {"python": sys.version.split()[0], **{name: version(name) for name in packages}}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    say(answers, {"versions": versions, "threads": {"cores": cores, **threads, **variables}})
    return json.loads(sys.argv[1]), answers


def say(answers: TextIO, message: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps(message), file=answers, flush=True)
