"""Simulated processor cores, and the small C programs that run on them."""
