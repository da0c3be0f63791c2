"""What a run is: the schema, the values it can take, its two doors (TOML and field=value), its packs."""

from testbed.config.run import RUN_VERSION, Run, canonical, cell_id, grid

__all__ = ["RUN_VERSION", "Run", "canonical", "cell_id", "grid"]
