"""Test whether a loss matches its name: run it on adversarial batches and compare dLoss/dlogp."""
