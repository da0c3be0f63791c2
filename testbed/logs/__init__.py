"""Training logs of this bench and of other stacks as one record per sequence, and metrics of their ratios.

record: the format. readers: one file per stack that writes another one. recompute: log-probabilities that a
log lacks, by a model. measure, clip_report, ratio_checks, sanity_checks: numbers about a log, none of which
needs to know who wrote it.
"""
