"""The program perf: what it prints, and what it can count on this host."""
