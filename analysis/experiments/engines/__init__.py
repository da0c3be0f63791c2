"""Effects of another engine, of lost log-probabilities and of anchors on ratios and on training."""
