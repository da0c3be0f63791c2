"""Losses that treat sequences of different origin, or of different outcome, differently."""
