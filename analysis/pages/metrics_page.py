"""Write docs/metrics.md: the logged numbers, their names in other stacks, and what shares a name."""

from testbed.diagnostics.metric_aliases import rows

PITFALLS = (
    'The sign of "kl": verl and tinker-cookbook log the mean of sampler minus trainer log-probabilities.',
    'The direction of "k3": trainer over sampler (verl, rLLM, ms-swift) or new policy over old (TRL async).',
    '"ratio" is new over old (PPO), trainer over sampler (mismatch), or old over sampler.',
    "Weights before or after truncation: verl's token mode and TRL log truncated ones.",
    '"ESS" is divided by tokens, sequences or the micro-batch; one run can read 0.99 and 0.04 at once.',
)


def page() -> str:
    """Return docs/metrics.md."""
    table = [
        f"| `{row['name']}` | {_cell(row['what'])} | {_cell(row['elsewhere'])} |"
        for row in rows()
        if row["logged"] == "by runs"
    ]
    asked = [f"| `{row['name']}` | {_cell(row['what'])} |" for row in rows() if row["logged"] == "on request"]
    return "\n".join(
        [
            "# Metrics",
            "",
            "Written by `testbed evidence pages metrics`. `testbed list metrics` prints the same.",
            "",
            "rho = pi/mu of a token, W its product over a sequence. Every ESS is a share of N and named by "
            "how, over what and of which weights; read it beside its floor 1/N. Names follow verl's stems.",
            "",
            "## Logged by runs",
            "",
            "| name | definition | elsewhere |",
            "|---|---|---|",
            *table,
            "",
            "## On request",
            "",
            "From `WeightSums.of(log_w).metrics(level)` (adds over shards) and `tail_metrics(log_w, level)`.",
            "",
            "| name | definition |",
            "|---|---|",
            *asked,
            "",
            "## The same name, another number",
            "",
            *(f"- {line}" for line in PITFALLS),
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
