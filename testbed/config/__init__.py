"""The schema of a run, its allowed values, its two forms (TOML and field=value), and packs of runs."""

from testbed.config.run import RUN_VERSION, Run, canonical, cell_id, grid

__all__ = ["RUN_VERSION", "Run", "canonical", "cell_id", "grid"]
