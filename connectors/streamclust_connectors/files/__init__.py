"""Files of events: JSON lines, CSV in any dialect, Parquet."""
