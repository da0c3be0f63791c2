"""Figures, one file each: draw(table) -> Figure."""
