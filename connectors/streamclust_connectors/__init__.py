"""The streamclust service: sources, sinks, and the loop between them. All I/O is here; the library has none."""
