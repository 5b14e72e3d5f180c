"""The command iadd-tr with agents trained as on a CPU that multiplies bfloat16, whatever computes here: to see by
returns whether rounding matters.

python benchmarks/rounded.py train --task halfcheetah --algo mbpo …
"""

from functools import partial

from iadd_tr.agent import sac
from iadd_tr.nets import multiplying
from iadd_tr.products import multiply_coarsely
from iadd_tr.shell.cli import main


def round_products() -> None:
    """Let agents multiply with rounded factors."""
    sac.in_training = partial(multiplying, multiply_coarsely)


if __name__ == "__main__":
    round_products()
    main()
