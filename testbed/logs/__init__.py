"""Training logs of this bench and of other stacks as one record per sequence, and metrics of their ratios.

record: the format. readers: one file per foreign format. recompute: log-probabilities that a log lacks, from
a model. measure, clip_report, ratio_checks, sanity_checks: numbers about a log, for any format.
"""
