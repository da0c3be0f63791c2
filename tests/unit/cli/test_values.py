"""The closing table of tabular sweeps on numbers worked by hand."""

import pandas as pd

from analysis.tables.value_table import value_table


def test_means_over_seeds_of_first_final_best_and_smallest():
    rows = []
    for seed, values in ((0, (0.1, 0.9, 0.5)), (1, (0.3, 0.4, 0.7))):
        for step, value in enumerate(values):
            ess = {"exact/ess_kish_sequence": 1 - 0.1 * step - 0.2 * seed}
            sampled = {"rollout_corr/ess_kish_sequence_raw": 0.5 + 0.1 * step}
            cell = {"task": "chain", "recipe": "grpo", "lag": 2, "seed": seed}
            rows.append({**cell, "step": step, "exact/value": value, **ess, **sampled})
    (row,) = value_table(pd.DataFrame(rows).sample(frac=1, random_state=0)).to_dict("records")
    expected = {"first": 0.2, "final": 0.6, "best": 0.8, "ess_exact": 0.7, "ess_sampled": 0.5, "n": 2}
    assert {k: round(row[k], 12) for k in expected} == expected
    unknown = pd.DataFrame(rows).drop(columns="exact/ess_kish_sequence")
    (row,) = value_table(unknown).to_dict("records")
    assert (row["ess_exact"] != row["ess_exact"], row["n"]) == (True, 2)
