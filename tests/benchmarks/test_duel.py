import subprocess
import sys
from pathlib import Path

import duel
import pytest

COUNTING = """
import sys
for number, _ in enumerate(sys.stdin):
    print({scale} * (number or 100), flush=True)
"""


def test_versions_are_asked_in_turns_and_their_first_answers_do_not_count(monkeypatch):
    def worker(source: Path, part: str, runs: int) -> subprocess.Popen:
        script = COUNTING.format(scale=3 if source == Path("other") else 2)
        return subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    monkeypatch.setattr(duel, "worker", worker)
    found = duel.duel("step", Path("other"), 1, 4)
    assert found["milliseconds"] == [[3.0, 2.0], [6.0, 4.0], [9.0, 6.0], [12.0, 8.0]]
    assert found["times_as_fast"] == pytest.approx(1.5)
    assert found["quartiles"] == pytest.approx([1.5, 1.5])
