"""The schema of a run, the values it can take, its two forms (TOML and field=value), and packs of runs."""

from testbed.config.run import RUN_VERSION, Run, canonical, cell_id, grid

__all__ = ["RUN_VERSION", "Run", "canonical", "cell_id", "grid"]
