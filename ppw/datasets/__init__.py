"""Public data sets: what there is, under which licence, and how to get and read it.

A set is one TOML file of this folder. None of its data come with ppw.
"""
