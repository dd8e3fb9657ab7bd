"""From a table of runs to checked groups."""
