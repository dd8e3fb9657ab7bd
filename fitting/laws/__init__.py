"""Laws of time, power, path length and cycles per I/O, one a module, and their estimators."""
