"""Memcached under load: servers, load generators, sweeps, and what limits a set-up."""
