"""Decisions between frequencies and hosts: compare, best frequency, plan, characterise."""
