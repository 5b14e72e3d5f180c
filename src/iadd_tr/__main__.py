"""`python -m iadd_tr` is the command `iadd-tr`."""

from iadd_tr.shell.cli import main

main()
