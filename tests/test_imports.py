"""Imports point one way: from the shell through the algorithms down to the records."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "iadd_tr"
LAYERS = [
    ["types", "settings", "products", "devices"],
    ["adam", "loops", "runs", "nets", "gaussian", "normaliser", "replay", "shuffle"],
    ["tasks", "dynamics", "agent"],
    ["rollout", "evaluate", "stage"],
    ["experiment"],
    ["algorithm"],
    ["training"],
    ["study", "bench"],
    ["report"],
    ["shell"],
]
HOST = {Path("tasks/crowd.py"), Path("tasks/envs.py")}  # environments in processes of their own
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported(path: Path) -> set[str]:
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    parts = [
        [*node.module.split(".")[1:], node.names[0].name] for node in nodes if (node.module or "").startswith("iadd_tr")
    ]
    return {part[0] for part in parts}


def test_no_module_imports_a_layer_above_or_a_sibling_beside_it():
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if own in ("__init__", "__main__"):
            continue
        for other in imported(path) - {own}:
            assert LEVEL[other] < LEVEL[own] or {own, other} <= {"nets", "gaussian", "replay"}, (
                f"{path} imports {other}"
            )


def test_only_the_shell_the_host_and_the_report_touch_the_outside():
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE)
        if place.parts[0] in ("shell", "report", "__main__.py") or place in HOST:
            continue
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not names & {"os", "sys", "subprocess", "pathlib", "shutil"}, path
