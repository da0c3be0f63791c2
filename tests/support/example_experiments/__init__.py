"""A package of one experiment, the example of CONTRIBUTING.md."""
