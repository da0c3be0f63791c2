"""What can be learned and told from logged data of finite worlds, with constraints and without."""
