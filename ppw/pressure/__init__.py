"""Which resources of a host a workload leans on, from logs of its counters."""


# Sweeps of one setting, such as threads or object size: their knee and operating point.


# What a recorded workload needs of a host, and what can share it.
