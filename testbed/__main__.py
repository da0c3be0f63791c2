"""python -m testbed: the command line, where the program testbed is not on the path."""

from testbed.cli import main

if __name__ == "__main__":
    main()
