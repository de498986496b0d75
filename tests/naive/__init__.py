"""Slow twins of the fast algorithms: plain loops that import nothing from the library."""
