"""Mistakes a person can mend: one sentence that says what to do, exit code 2."""


class UserError(Exception):
    """Shown without a traceback."""
