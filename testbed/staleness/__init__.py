"""Which weights version makes the data."""
