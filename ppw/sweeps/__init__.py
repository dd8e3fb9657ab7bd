"""Sweeps of one setting, such as threads or object size: their knee and operating point."""
