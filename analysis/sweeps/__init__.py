"""Read sweeps: tuning, comparison, warnings."""
