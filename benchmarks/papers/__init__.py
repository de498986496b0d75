"""The papers' tables and figures, repeated: a script for each, which writes its page of docs/papers."""
