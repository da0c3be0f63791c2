"""How old data get and how fast training runs, by simulated clocks."""
