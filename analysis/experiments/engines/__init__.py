"""What another engine, lost log-probabilities and anchors do to ratios and to training."""
