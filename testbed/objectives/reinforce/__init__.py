"""Score-function losses: a detached weight times A log pi; they differ in the weight."""
