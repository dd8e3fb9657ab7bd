"""Power: calibration of sensors, and power against load."""
