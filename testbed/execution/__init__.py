"""Turn cells into results: packs, workers, executors, and the checks before the first one starts."""
