"""The arena: one table of recipes on stale data, each tuned alike. This text is its design.

Version 2, fixed before the first run of its table. Version 1 had one task without headroom (three skills:
fresh data ended at .43) and is given up.

- **Tasks** (`tasks.TASKS`), each with another reason to fail: a rare success (`sorted`, the base is right in
  2 %), length (`sums`, 16 tokens that must all be right), turns with a tool (`guess`), answers of
  free length (`length`). Budgets were set by pilots of GRPO, two seeds at rates .001, .002 and .004 that no
  table has, so that fresh data end between .5 and .9 and still rise. Fresh and at lag 64 the best of them
  ended at: sorted .88 and .67, sums .87 and .46, guess .85 and .51, length .80 and .57. Dropped by pilots:
  sums of 24 digits and copies of 32 (half of the seeds end at 1, the others at 0), length from a base model
  that is right in 79 %, three skills. Dropped by the gate, before any other arm had run: two roles that must
  agree (solver and checker), where GRPO on fresh data ended at .38 after 240 steps and at .47 after 480.
- **Lags** in optimizer steps: 0, 16 and 64; on `guess` and `length`, whose budget is long enough, 0, 64 and
  256; on `long`, `sorted` with 14 digits and three times the steps, 0 and 256. Order of work: GRPO at lag 0
  of every task, then lag 64 of all arms, then 256, then 16.
- **Arms** (`arms.ARMS`): recipes of the catalog, most asked first, each with one knob, usually the one that
  its paper tunes. A recipe without a knob in the catalog has a grid of nine rates instead.
- **Controls**: fresh data (GRPO at lag 0), `reinforce`, and `placebo`, which is GRPO tuned and run on other
  seeds. No statement may favor the placebo.
- **Tuning** (`tuning`), one budget for all: nine settings of rate x knob on two tuning seeds, the best three
  on three more, by the mean final accuracy. While the best setting lies at an edge of what was tried, its
  neighbors beyond that edge run on the same five seeds, at most three times. `at_edge` says where that was
  not enough; the end of a knob's ladder is no edge, as no value lies behind it.
- **Finals**: at the chosen setting on seeds 0 to 15 and, as a replication, 1000 to 1015, on which nothing was
  tuned; and at a third and three times of the rate on seeds 0 and 1, for the sensitivity.
- **Outcome**: final accuracy, the mean of the last three of eleven measurements on held-out prompts; a run
  that diverged counts as 0. Beside it: area, collapse, entropy, length, pass@8, KL, clip share and ESS.
- **Margin**: a difference of 0.05 in the final accuracy counts.
- **Part**: `guess` and `length` cost three times as much as the others, so the thirteen arms that are asked
  most, chosen before their runs, and the controls go first there.
- **Reuse**: at lag 0 on `sorted` and `sums`, recipes that update several times on a batch, `arms.REUSE`;
  there the area counts, the mean accuracy along the run, by 0.02.
- **pass@8**: max@k and GRPO, both tuned for pass@8 in place of the accuracy, at lag 0 on `sums` and `guess`.
- **Added** after lag 64 of the first 24 arms had been read, and before its own runs: the knobs of `sapo` and
  `bapo`, which had run at nine rates alone, and whose first rows are dropped; `long`, whose pilot of GRPO on
  fresh data ended at .84 to .94 after 860 steps; the reuse; six arms at the end of the list.
- **Lag 256 for more arms**, added after all of the above had been read and before its own runs: `guess` gets
  M2PO and VCPO, then both `guess` and `long` TOPR, TIS, GSPO, MIS, PPO-EWMA, decoupled PPO and REINFORCE, so
  that twelve arms ran on both, tuned as every arm, 16 + 16 seeds. OAPL's arm leaves out groups with equal
  rewards, as its paper does; its rows at lag 64 are made again.
- **Lags 400 and 1**, added after all of the above had been read and before its own runs: 400 on `long` for
  the twelve arms that ran there at 256 and the placebo; 1 on `sorted` and `sums` for eleven of them.
- **Pipeline**, a column added after lag 16 of `sorted` and `sums` had been read and before its own runs:
  eleven of the arms that ran there, at the settings tuned there, 16 + 16 seeds, on ages that a simulated
  pipeline gives (`tasks.PIPELINES`: in-flight updates, groups dropped, responses resumed; ages 3 to 40, mean
  16), each seed its own pipeline. A response has the weights of its first token, as a group has one age here.
  Asked: whether GRPO, and the arms' mean, end within 0.05 of lag 16; and whether the arms' order on a seed
  agrees with their mean order at lag 16 on the other seeds as well as the order at lag 16 does, Kendall's tau
  less by at most 0.1. Time allowed ten arms without the placebo on `sorted`, 10 + 10 seeds at first.
- **Pipeline, the planned seeds**, written before their runs: `sorted` goes on to 16 + 16 seeds, the placebo
  runs as well, and REINFORCE runs again at the rate of the grid, .00056, as its rows had been at .0006.
- **One setting**, added after the finals had been read and before its own runs (`one_setting`): what fixing
  rate and knob beforehand costs. The setting is the one with the best mean tuning score over all stale tasks
  and lags of an arm (`table.joint`). Arms: ten of the pipeline's and the placebo. In the order of work: lag
  64 of `sorted`, `sums` and `guess`, then lag 16 of `sorted` and `sums`, 10 + 10 seeds of the finals. Where
  an arm's one setting is its own nothing runs and the loss is 0. Reported: own less one with an interval over
  seeds; no claim is asked. Curves are measured twice as often as the arena measures, finals at its steps.
- **Finer rates**, added after all finals had been read and before its own runs. GRPO at 5.6e-4, between two
  rates of its grid, scores .18 more on `long` at lag 400 than at its chosen rate (five tuning seeds), so a
  factor of three between rates is too coarse. Every arm, the placebo and fresh data's GRPO too, goes on
  from its tuning on the same five seeds: while a rate halfway to a neighbor more than a factor of 2 away,
  or a neighbor of `beyond`, is untried, it runs, at most three rounds; a new arm does so after its growth.
  Arms with nine rates have steps of 1.8 already. Where the setting changes the finals run again, on as many
  seeds as the arm had, and its old rows go. Order: `long` at 400, 256, 64 and 0; `sums`, `sorted` and
  `guess` at 64; `guess` at 256; lags 0, 16 and 1; then `length`. Finals at one setting stay what they were,
  that setting one of the first grid's. The pipeline's runs are made again where lag 16's setting changes
  (decided while lag 16 ran), as the two are compared. `sfpo_reuse` gets 64 + 64 seeds in place of 432 +
  432. GRPO alone was scored at three clips at fresh data's new rate on `sorted` and `guess` at lag 64, for
  the findings; none of these is its best. So tuned, GRPO on fresh data ends at .49 on `length`, so that
  this task, on which no claim was, has no headroom left and takes no recipe. After three rounds 13 of 277
  searches still had a neighbor to try; no other arm than these has a step above 2 beside its rate.
- **Floor**, since 2026-11-27: where the best of an arm's settings stays below .05, every value of its knob is
  tried at the first grid's three rates on the two screening seeds, and up to three that beat it on all five;
  then the search goes on. So it is with TOPR, P3O and RLOO on `sums` at lag 64. TOPR alone moves, and its
  finals at one setting are made again, since that setting moves too.
- **Fresh data, settled**, added after all finals had been read and before its own runs: at the rate that
  five tuning seeds chose for GRPO on fresh `long`, .001, one run in seven never learns (96 of 640), and
  .00055 had scored .012 less. So the best four settings of GRPO at lag 0 of every task run on tuning seeds
  up to 32, and the best mean over all 32 wins (`--finer --pilots 32`). Where the setting changes the finals
  run again, on as many seeds as the arm had, at most 64 + 64. Then
  every arm on `sums` at lag 64 followed, and GRPO, M2PO, MinPRO, CISPO and TIS on `guess` at 256. That pass
  left out what its finer rates had made promising on five seeds, GRPO's wide clip among them. So, written
  after finals had been read and before the runs that it asks for, such settings run on all pilots, round by
  round, and an arm that ends below the base model tries a third of its smallest rate. This ran for every arm
  at every task and lag.
- **Stopping**: 16 + 16 seeds for every arm, judged by the rule of docs/theory/verdicts.md as the claims of
  experiment `arena`; that rule holds at any stopping time. Arms of claims that stay open get 32 + 32 seeds, a
  few of them 64 + 64.
"""
