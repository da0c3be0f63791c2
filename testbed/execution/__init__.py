"""How cells become results: packs, workers, executors, and what is checked before the first one starts."""
