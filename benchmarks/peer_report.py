"""Tables from the raw blocks of `peers.json`: medians over rounds, and ratios within each round."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

Block = dict[str, float]
Round = dict[str, Block]
Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
OURS = "iadd-tr"


def tables(result: dict[str, Any]) -> list[Table]:
    """A title, columns and rows for each contest."""
    sac, mbpo = result["sac"]["rounds"], result["mbpo"]["rounds"]
    return [speeds(sac), paces(mbpo), units(mbpo)]


def speeds(rounds: Sequence[Round]) -> Table:
    """SAC: updates per second, and how many times as many we make."""
    rows = [
        (
            name,
            spread(values(rounds, name, updates_per_second), 0),
            spread(values(rounds, name, cores_in_use)),
            spread(ratios(rounds, name, updates_per_second)),
        )
        for name in rounds[0]
    ]
    return "SAC on Hopper", ("", "updates per second", "cores in use", f"{OURS} ÷ it"), rows


def paces(rounds: Sequence[Round]) -> Table:
    """MBPO: seconds per environment step, and how many times as many steps we make."""
    rows = [
        (
            name,
            spread(values(rounds, name, lambda b: b["seconds"] / b["steps"]), 3),
            spread(values(rounds, name, cores_in_use)),
            spread(ratios(rounds, name, steps_per_second)),
            spread(ratios(at_our_fits(rounds), name, steps_per_second)),
        )
        for name in rounds[0]
    ]
    return (
        "MBPO on Hopper",
        (
            "",
            "seconds per step",
            "cores in use",
            f"{OURS} ÷ it, steps per second",
            "with as many gradient steps per fit",
        ),
        rows,
    )


def units(rounds: Sequence[Round]) -> Table:
    """MBPO: what each piece of work costs; an update stands for all that is neither fit nor rollout."""
    measures: dict[str, tuple[Callable[[Block], float], int]] = {
        "ms per gradient step of the ensemble": (lambda b: 1e3 * b["fit_seconds"] / b["gradient_steps"], 2),
        "ms per agent update, acting and stepping included": (lambda b: 1e3 * rest(b) / b["updates"], 2),
        "µs per imagined row": (lambda b: 1e6 * b["rollout_seconds"] / b["imagined_rows"], 2),
        "epochs per fit": (lambda b: b["fit_epochs"], 0),
        "gradient steps per fit": (lambda b: b["gradient_steps"], 0),
    }
    rows = [
        (label, *(spread(values(rounds, name, measure), digits) for name in rounds[0]))
        for label, (measure, digits) in measures.items()
    ]
    return "MBPO on Hopper, where the time goes", ("", *rounds[0]), rows


def at_our_fits(rounds: Sequence[Round]) -> list[Round]:
    """The rounds as they would be if every fit had made as many gradient steps as ours, at each one's own cost."""

    def scaled(block: Block, wanted: float) -> Block:
        fit = block["fit_seconds"] * wanted / block["gradient_steps"]
        return block | {"seconds": block["seconds"] - block["fit_seconds"] + fit}

    return [{name: scaled(block, one[OURS]["gradient_steps"]) for name, block in one.items()} for one in rounds]


def values(rounds: Sequence[Round], name: str, measure: Callable[[Block], float]) -> list[float]:
    return [measure(one[name]) for one in rounds]


def ratios(rounds: Sequence[Round], name: str, rate: Callable[[Block], float]) -> list[float]:
    """Our rate over another's, within each round."""
    return [rate(one[OURS]) / rate(one[name]) for one in rounds]


def updates_per_second(block: Block) -> float:
    return block["updates"] / block["seconds"]


def steps_per_second(block: Block) -> float:
    return block["steps"] / block["seconds"]


def cores_in_use(block: Block) -> float:
    return block["processor_seconds"] / block["seconds"]


def rest(block: Block) -> float:
    """Seconds that are neither fit nor rollout."""
    return block["seconds"] - block["fit_seconds"] - block["rollout_seconds"]


def spread(sample: Sequence[float], digits: int = 2) -> str:
    """Median (lowest – highest)."""
    return f"{median(sample):.{digits}f} ({min(sample):.{digits}f} – {max(sample):.{digits}f})"


def markdown(result: dict[str, Any]) -> str:
    """The tables with what was done, the command, the machine and the versions."""
    lines = ["# Beside its peers", "", *setting(result)]
    for title, columns, rows in tables(result):
        lines += [
            "",
            f"## {title}",
            "",
            *(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)),
        ]
    lines += ["", "## Versions and threads", ""]
    for contest in ("sac", "mbpo"):
        for name, entrant in result[contest]["entrants"].items():
            facts = {**entrant["versions"], **{f"threads/{key}": value for key, value in entrant["threads"].items()}}
            lines.append(f"- {contest}, {name}: {', '.join(f'{key} {value}' for key, value in facts.items())}")
    return "\n".join(lines) + "\n"


def setting(result: dict[str, Any]) -> list[str]:
    """What the numbers are of."""
    machine, plan = result["machine"], result["mbpo"]["entrants"][OURS]["plan"]
    rounds = {contest: len(result[contest]["rounds"]) for contest in ("sac", "mbpo")}
    return [
        f"`{result['command']}`, {result['date']}, commit {result['commit'][:12]}, {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['system']}, load {machine['load']} before the start.",
        "",
        f"Everyone makes {plan['updates_per_step']} updates per environment step of Hopper-v5 with batches of 256 and "
        "two hidden layers of 256. MBPO has 7 members of 4 × 200, 5 elites, batches of 256, 400 rollouts of one step "
        f"per environment step and a fit every {plan['fit_every']} steps; the first timed fit is everyone's second. "
        f"The workers take turns, block by block ({rounds['sac']} rounds of SAC, {rounds['mbpo']} of MBPO); "
        "compilation, warm-up and evaluation are not timed. Numbers are medians over rounds (lowest – highest), and "
        "ratios are taken within a round. A fit ends when its holdout error does, so the number of gradient steps "
        "differs; the last column of the MBPO table scales every fit to as many as ours made.",
    ]
