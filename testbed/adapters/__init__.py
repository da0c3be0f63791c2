"""Adapters: use an objective of this bench as the loss of another trainer.

trl: a GRPOTrainer subclass. verl: a function with its policy-loss signature. Neither library is imported
before it is asked for; what was run with which is in docs/adapters.md.
"""
