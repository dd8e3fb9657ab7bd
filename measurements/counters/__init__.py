"""The program perf: what it prints, and what it can count on this host."""


# Hardware counters of a run, by ``perf stat``.
