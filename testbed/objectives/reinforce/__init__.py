"""Score-function losses: a detached weight times A log pi. What differs is the weight."""
