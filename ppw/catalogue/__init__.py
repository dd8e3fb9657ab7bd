"""Hosts, public data sets and samples that ppw knows."""
