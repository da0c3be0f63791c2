"""Age of data and speed of training, by simulated clocks."""
