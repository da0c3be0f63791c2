"""Judge claims: evidence, the decision rule, gates, verdicts and the systems they speak of."""
