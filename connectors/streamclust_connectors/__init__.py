"""streamclust's service: sources, sinks and the loop between them. I/O lives here, mathematics does not."""
