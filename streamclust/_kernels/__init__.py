"""Compiled loops on plain arrays: no objects, no closures, no state of their own."""
