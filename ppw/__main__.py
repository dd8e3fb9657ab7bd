"""`python -m ppw`."""

from ppw.cli import run

run()
