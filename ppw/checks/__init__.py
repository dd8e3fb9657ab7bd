"""Looks for rows of a runs table that cannot be right: one file a way of being wrong.

`ppw.quality` runs them all.
"""
