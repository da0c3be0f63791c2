"""Behavior, anchor and target are three policies: one factor for the engine, one for the update."""
