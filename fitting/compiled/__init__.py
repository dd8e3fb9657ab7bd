"""Compiled loops, and random numbers and hashing for them."""
