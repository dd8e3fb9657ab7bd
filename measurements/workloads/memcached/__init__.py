"""Memcached under load: servers, load generators, sweeps, and what limits a set-up.

`experiment` measures; the rows' verdicts (`verdicts`) come from the rows alone.
"""
