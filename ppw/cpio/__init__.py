"""Cycles per I/O: measured, against cores, projected, sized and compared; see docs/cpio.md."""
