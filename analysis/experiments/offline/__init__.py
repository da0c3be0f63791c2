"""Learning and evaluation from logged data of finite worlds, with constraints and without."""
