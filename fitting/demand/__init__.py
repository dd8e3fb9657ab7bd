"""Demand of a workload over time: utilisation, phases, co-location."""
