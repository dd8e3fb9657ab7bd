"""Projection of time, power and energy to what was not measured, and its validation."""
