"""``python -m commlab.cli``: the same as the installed command ``commlab``."""

from commlab.cli import command

command()
