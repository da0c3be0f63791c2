"""The arena: one table of recipes on stale data, each tuned alike. This text is its design.

Fixed before the first run of the table:

- **Tasks** (`tasks.TASKS`), in the order in which they run. A task has headroom when fresh data at the best
  setting end between 0.5 and 0.9. `skills` is first. Pilots of GRPO at one or two rates on two tuning seeds
  ended, fresh and at lag 64: skills .51 and .43; guess .73 and .53; sorted (ten digits) .91 and .83;
  hidden-noise .93 and .83. Eight sorted digits ended at .94 fresh and guesses after noise .35 at .99, so they
  have no room. The long sum had no pilot.
- **Lags** 0, 64 and 256 optimizer steps; 16 and 400 on `skills` and `sorted`. Order of work: lag 64 of
  `skills`, then its lags 256 and 0, then the other tasks.
- **Arms** (`arms.ARMS`): recipes of the catalog, in the order in which they run, each with one knob of three
  values, the default among them. A recipe that has no knob in the catalog has a grid of nine rates instead.
- **Controls**: fresh data (GRPO at lag 0), `reinforce`, and `placebo`, which is GRPO tuned and run on other
  seeds. No statement may favor the placebo.
- **Tuning** (`tuning`): nine settings on one tuning seed, then the best three on three more, by the mean of
  the final accuracy. While the best rate is the lowest or the highest tried, one more rate beyond it runs
  with the best knob on the same four seeds, at most twice. So an arm has 18 cells, and at most 8 more.
- **Finals**: seeds 0 to 5 at the chosen setting, on which nothing was tuned, and further cells at a third
  and three times of the chosen rate on seeds 0 and 1, for the sensitivity.
- **Margin**: a difference of 0.05 in the final accuracy counts.
- **Stopping**: six seeds for every arm. The table shows effects with intervals and gives no verdict; more
  seeds come in blocks for claims, by the rule of docs/theory/verdicts.md.
"""
