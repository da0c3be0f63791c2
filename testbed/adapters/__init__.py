"""Adapters: use an objective of this bench as the loss of another trainer.

trl: a GRPOTrainer subclass. verl: a function with its policy-loss signature. Libraries are imported on use
only; docs/adapters.md lists the versions tried.
"""
