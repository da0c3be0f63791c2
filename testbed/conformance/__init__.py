"""Test whether a loss is what its name says: run it on adversarial batches and compare dLoss/dlogp."""
