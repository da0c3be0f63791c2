"""A runner in a process of its own, to be killed and interrupted: folder, function, cells, workers."""

import sys

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.progress import choose
from testbed.execution.runner import run_sweep


def cells(count: int) -> tuple[Run, ...]:
    """Return a sweep of one-cell packs."""
    return grid(Run(policy="hf", model="m"), seed=range(count))


def main(folder: str, function: str, count: str, workers: str) -> int:
    """Run the sweep as the command line does: 0 done, 2 bad input, 130 interrupted."""
    try:
        status = run_sweep(
            cells(int(count)), folder, workers=int(workers), function=f"support.fake_training:{function}",
            progress=choose(),
        )  # fmt: skip
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(stop, file=sys.stderr)
        return 130
    print(status.done, status.failed, status.pending)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
