"""What each recipe of the arena gains on old data, its rate and one knob tuned as those of its rivals."""
