"""Terms that are added to a loss: KL, entropy, distillation."""
