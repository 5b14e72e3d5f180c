"""A virtual environment for each peer, made once and made again where its requirements have changed."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from iadd_tr.shell.errors import UserError

COMMON = ("torch==2.13.0", "gymnasium[mujoco]==1.4.0", f"mujoco=={version('mujoco')}")
HELPERS = ("hydra-core==1.3.8", "omegaconf>=2.3", "termcolor", "tensorboard", "imageio", "matplotlib", "tqdm")
REQUIREMENTS = {  # one tuple for each call of pip
    "sb3": ((*COMMON, "stable-baselines3==2.9.2"),),
    "sbx": ((*COMMON, "sbx-rl==0.28.0", f"jax=={version('jax')}"),),
    "mbrl": ((*COMMON, *HELPERS), ("--no-deps", "mbrl==0.2.0")),
}


def python_of(name: str, cache: Path, tell: Callable[[str], None]) -> Path:
    """The Python of a peer's environment, which is made where it is not there."""
    folder, wanted = cache / name, repr(REQUIREMENTS[name])
    python, made_with = folder / "bin" / "python", folder / "requirements"
    if made_with.exists() and made_with.read_text() == wanted:
        return python
    tell(f"Making the environment of {name} in {folder} …")
    shutil.rmtree(folder, ignore_errors=True)
    call(sys.executable, "-m", "venv", folder)
    for requirements in REQUIREMENTS[name]:
        call(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    made_with.write_text(wanted)
    return python


def call(*command: str | Path) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"'{' '.join(map(str, command))}' failed ({last}); mend that and start again.")
