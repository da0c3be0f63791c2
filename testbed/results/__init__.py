"""Results on disk: one Parquet file per finished pack, a manifest, locks for writers that share a folder."""
