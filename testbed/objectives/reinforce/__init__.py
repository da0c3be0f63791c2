"""Score-function losses: A log pi times a detached weight; only the weight differs."""
