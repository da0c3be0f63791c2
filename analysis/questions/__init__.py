"""Questions of users of training stacks in public threads, answered by code or by a verdict."""
