"""Entry point of the command line: `testbed`, or `python -m testbed`."""

import sys


def main() -> None:
    """Load the command line and run it; Ctrl-C while it loads ends it with one word and exit code 130."""
    try:
        from testbed.cli import main as run  # imported here: an interrupt is to be caught
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
