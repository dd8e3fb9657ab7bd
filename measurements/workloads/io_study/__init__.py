"""Studies of cycles per I/O: one workload at several core counts, devices and memory bandwidths."""
