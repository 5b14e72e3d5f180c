"""What studies and benchmarks leave: folders, tables in files and on the screen, and bars that count."""

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from iadd_tr.shell.errors import UserError


def make_folder(folder: Path) -> Path:
    """A folder that can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot write to '{folder}' ({error.strerror}); give a writable folder with --out.") from None
    return folder


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Rows with equal columns."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on the screen."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)


@contextmanager
def progress(name: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar that counts, given as the function that advances it; some twenty lines where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(name, total=total)

        def advance() -> None:
            bar.advance(task)
            done = int(bar.tasks[0].completed)
            if not bar.console.is_terminal and done % max(total // 20, 1) == 0:
                bar.console.print(f"{name} {done}/{total} after {bar.tasks[0].elapsed or 0:.0f} s", highlight=False)

        yield advance
