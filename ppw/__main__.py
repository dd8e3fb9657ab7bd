"""`python -m ppw`."""

from ppw.cli import console

console()
