"""Entry point of the `streamclust` command; if a module is missing, an error names the extra to install."""

from __future__ import annotations

import sys

from streamclust_connectors.extras import install_hint


def main() -> None:
    """Run the command line."""
    try:
        from streamclust_connectors import cli
    except ImportError as error:
        advice = install_hint(error)
        if advice is None:
            raise
        sys.exit(f"error: the streamclust command needs more packages than the library: {advice}")
    cli.main()


if __name__ == "__main__":
    main()
