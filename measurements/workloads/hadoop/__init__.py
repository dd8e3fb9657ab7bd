"""Measurements of Hadoop MapReduce jobs in one process, on one machine, or on a user's cluster."""
