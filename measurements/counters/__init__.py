"""Hardware counters of a run, by the program perf: what it prints, and what it can count here."""
