"""Hadoop MapReduce jobs, measured: in one process, on a one-machine cluster, or on the user's own.

`jars` brings Hadoop here and `java` finds what runs it. `jobs` says what a run is; an engine
(`local`, `one_machine`, `user_cluster`) runs it; `history` and `local_log` read what it did, which
`figures` makes columns of. `sweep` is the measuring loop.
"""
