"""Straight lines of many groups at once, errors in both variables, knees."""
