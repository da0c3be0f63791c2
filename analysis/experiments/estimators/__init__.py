"""What estimators of values, intervals and tests of them do, and what the project's own tests promise."""
