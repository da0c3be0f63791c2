"""The report card of an objective."""
