"""What Hugging Face models do, and whether the toy foretells it."""
