"""Is a loss what its name says? Runs it on adversarial batches and compares dLoss/dlogp."""
