"""The instrument: objectives, recipes, exact lag, policies and the loop that joins them.

Nothing heavy is imported here, so the command line, `analysis` and `paper_figs` start without torch.
"""

__version__ = "0.1.0"
