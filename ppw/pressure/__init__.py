"""Pressure of workloads on their hosts, room for others beside them, and knees of sweeps."""
