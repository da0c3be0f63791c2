"""Token tasks: a prompt, a response, a reward. One file each; `envs.catalog` finds them."""
