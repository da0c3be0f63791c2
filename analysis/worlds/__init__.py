"""Worlds and starting points that several experiments share."""
