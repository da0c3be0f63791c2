"""Entry point of the command line: `testbed`, or `python -m testbed`."""

import sys


def main() -> None:
    """Load the command line and run it; Ctrl-C during loading prints one word and exits with code 130."""
    try:
        from testbed.cli import main as run  # imported here, to catch an interrupt
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
