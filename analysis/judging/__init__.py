"""Judge claims: evidence, the decision rule, gates, verdicts and the systems that they concern."""
