"""Experiments on Hugging Face models, and tests whether the toy model predicts them."""
