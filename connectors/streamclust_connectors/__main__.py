"""The `streamclust` command; if a module that it needs is not installed, an error that names the extra."""

from __future__ import annotations

import sys

from streamclust_connectors.extras import cure


def main() -> None:
    """Run the command line."""
    try:
        from streamclust_connectors import cli
    except ImportError as error:
        advice = cure(error)
        if advice is None:
            raise
        sys.exit(f"error: the streamclust command needs more than the library: {advice}")
    cli.main()


if __name__ == "__main__":
    main()
