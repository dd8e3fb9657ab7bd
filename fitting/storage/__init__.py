"""State diagrams of block traces: survey, transitions, generator, caches and devices."""
