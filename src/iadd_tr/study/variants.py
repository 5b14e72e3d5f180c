"""The open settings of targeted regularization, one change at a time from each of the two ways to fit it.

Whether the actor's gradient goes through the density e is no variant here: a score-function gradient takes values only.
"""

from collections.abc import Sequence
from dataclasses import replace

from iadd_tr.study.paired import Variant

GRADIENT = Variant("gradient", agent=(("targeting", "gradient"),))
SOLVE = Variant("solve", agent=(("targeting", "solve"),))
MAIN = (GRADIENT, SOLVE)


def _program(base: Variant, name: str, **fields: int | float | str) -> Variant:
    """A change that makes another program."""
    return replace(base, name=f"{base.name}, {name}", agent=(*base.agent, *fields.items()))


def _traced(base: Variant) -> tuple[Variant, ...]:
    """Changes within one program."""
    return (
        *(replace(base, name=f"{base.name}, floor {floor:g}", floor=floor) for floor in (0.01, 0.1, 10.0)),
        replace(base, name=f"{base.name}, logged density", density="logged"),
    )


ONLINE = _program(SOLVE, "online target", epsilon_target="online")

VARIANTS = (
    *_traced(GRADIENT),
    *(replace(GRADIENT, name=f"gradient, rate {rate:g}", rate=rate) for rate in (3e-3, 3e-2)),
    _program(GRADIENT, "256 units", epsilon_hidden=256),
    _program(GRADIENT, "online target", epsilon_target="online"),
    *_traced(SOLVE),
    replace(SOLVE, name="solve, one for both twins", shared=True),
    ONLINE,
    *_traced(ONLINE),
    _program(SOLVE, "constant", epsilon_degree=0),
    _program(SOLVE, "quadratic", epsilon_degree=2),
    _program(SOLVE, "degree 4", epsilon_degree=4),
    _program(SOLVE, "decay 0.9", epsilon_decay=0.9),
    _program(SOLVE, "decay 0.9995", epsilon_decay=0.9995),
    _program(SOLVE, "ridge 0.1", epsilon_ridge=0.1),
    _program(SOLVE, "ridge 1e-05", epsilon_ridge=1e-5),
)


def programs(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Those that one program can train together."""
    groups: dict[tuple, list[Variant]] = {}
    for variant in variants:
        groups.setdefault(variant.agent, []).append(variant)
    return list(groups.values())
