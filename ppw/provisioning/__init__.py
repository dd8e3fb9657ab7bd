"""What a recorded workload needs of a host, and what can share it."""
