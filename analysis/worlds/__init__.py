"""Worlds and base models that several experiments share."""
