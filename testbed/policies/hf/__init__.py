"""Hugging Face causal language models as policies."""
