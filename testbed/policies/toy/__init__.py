"""The toy LLM: a small transformer with a native replica axis."""
