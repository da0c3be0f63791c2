"""A random world of four states and two actions, its model and its best values; keys of four cells."""

import numpy as np

from envs.logged_data import exact_model
from envs.mdps import garnet
from testbed.offline import tabular_offline

KEYS = np.arange(4, dtype=np.uint64)
WORLD = garnet(states=4, actions=2, branching=2, discount=0.8, seed=1)
MOVES, REWARD = (x[None] for x in exact_model(WORLD))
BEST = tabular_offline.fitted_q(MOVES, REWARD, 0.8)[0]
