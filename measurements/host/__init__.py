"""What the kernel tells of the host: its processors and clocks, and what the CPUs did."""
