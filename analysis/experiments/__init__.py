"""One experiment per file: question, source, cells or computation, table, margins, claims, figure.

The format is that of `analysis.experiment`; CONTRIBUTING.md, "Add an experiment: one file", shows one.
"""
