"""Experiments that measure every objective alike."""
