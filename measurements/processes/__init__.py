"""Processes that outlive or supervise ppw, and the programs that it starts."""
