"""Mistakes a person can mend: one sentence that says what to do, exit code 2."""

from collections.abc import Iterable


class UserError(Exception):
    """Shown without a traceback."""


def require(rules: Iterable[tuple[bool, str]]) -> None:
    """Refuse with the sentence of the first rule that does not hold."""
    for holds, sentence in rules:
        if not holds:
            raise UserError(f"{sentence}.")
