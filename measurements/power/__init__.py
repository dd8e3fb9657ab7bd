"""Watts and joules: one small file a kind of sensor, one protocol for all of them."""
