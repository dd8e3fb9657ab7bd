"""Which resources of a host a workload leans on, from logs of its counters."""
