"""Value estimators, intervals, and the promises of the project's own statistical tests."""
