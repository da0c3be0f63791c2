"""testbed exact: ask the oracle what an objective's gradient is on a small token tree."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.extensions import part
from testbed.config.argument_types import wrong_types
from testbed.errors import UserError, refuse, unknown
from testbed.words import split, value_of

if TYPE_CHECKING:
    from testbed.exact.gradient_facts import GradientReport
    from testbed.exact.gradient_report import Bench

DEFAULTS: dict[str, Any] = {
    "vocabulary": 4, "length": 4, "drift": 0.3, "signal": "R", "baseline": "optimal", "seed": 0,
    "end_token": None, "group": 1, "advantage": None, "aggregation": None,
}  # fmt: skip
WHOLE = ("vocabulary", "length", "seed", "end_token", "group")


def exact(
    objectives: Annotated[
        str,
        typer.Argument(
            metavar="OBJECTIVE[,...]", help="Objectives, ratio:LEVEL, or path/to/file.py:function."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...",
            help=f"Settings: {' '.join(DEFAULTS)}; also hyperparameters, for the objectives that have them.",
        ),
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw bias split and bias against deviation into a .png or .pdf.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print the exact bias and variance of one-sample gradients on a random token tree, by enumeration.

    signal: R, R-b (reward minus baseline=NUMBER or optimal) or A (the exact advantage). group=2 to 4 uses
    batches of that many responses; advantage=NAME then computes advantages from the group's rewards. Plain
    ratios: ratio:token, prefix, suffix, sequence, min_prefix, geometric, none.

    Examples: testbed exact ppo_clip,gspo,ratio:prefix

    testbed exact cispo,ppo_clip vocabulary=3 length=3 drift=1 eps_high=0.5
    """
    from testbed.exact.response_tree import tree_facts

    names = [name.strip() for name in objectives.split(",") if name.strip()]
    if not names:
        raise UserError("No objective was given; name at least one, say: testbed exact ppo_clip,reinforce")
    hyper = hyperparameters(names)
    given = parse(settings or [], {key for own in hyper.values() for key in own})
    _check_together(given)
    bench = _bench(given)
    reports = [
        _report(name, bench, given, {key: given[key] for key in hyper[name] if key in given})
        for name in names
    ]
    facts = asdict(tree_facts(bench.tree, bench.mu_SA, bench.pi_SA))
    rows = [report.row() for report in reports]
    if figure is not None:
        part("draw_bias")(rows, figure)
    if json:
        show.as_json({"settings": given, "tree": facts, "reports": rows})
        return
    _print(facts, rows)
    if figure is not None:
        print(f"Figure: {figure}")


def hyperparameters(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the hyperparameters of every objective that no setting is called by; none for a plain ratio."""
    from testbed.objectives import objective

    entries = {name: None if name.startswith("ratio:") else objective[name] for name in names}
    own = {name: list(entry.defaults) if entry else [] for name, entry in entries.items()}
    return {name: [key for key in keys if key not in DEFAULTS] for name, keys in own.items()}


def parse(words: Sequence[str], hyper: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings with defaults filled in, and the hyperparameters given.

    hyper: known hyperparameters. Raises UserError for an unknown name or a wrong value.
    """
    found = dict(DEFAULTS)
    for word in words:
        name, value = split(word, "NAME=VALUE, as drift=0.5")
        if name not in DEFAULTS and name not in hyper:
            raise unknown("setting", name, {*DEFAULTS, *hyper})
        found[name] = _value(name, value) if name in DEFAULTS else value_of(value)
    return found


def _check_together(given: dict[str, Any]) -> None:
    """Raise UserError for settings that another one would leave without effect."""
    from testbed.advantages import advantage

    if given["baseline"] != "optimal" and given["signal"] != "R-b":
        raise UserError(
            f"baseline={given['baseline']:g} has no effect with signal={given['signal']}; take signal=R-b."
        )
    if given["advantage"] is None:
        return
    if given["signal"] != "R":
        raise UserError(
            f"signal={given['signal']} has no effect with advantage={given['advantage']}, which is computed "
            "from the rewards; give one of the two."
        )
    if given["group"] == 1 and advantage[given["advantage"]].promises["scope"] != "sequence":
        raise UserError(
            f"advantage={given['advantage']} compares responses, and group=1 has a single one; take group=2 "
            "or more."
        )


def _value(name: str, text: str) -> Any:
    if name in ("end_token", "advantage", "aggregation") and text == "none":
        return None
    if name in ("signal", "advantage", "aggregation") or (name == "baseline" and text == "optimal"):
        return text
    try:
        number = int(text) if name in WHOLE else float(text)
    except ValueError:
        kind = "a whole number" if name in WHOLE else "a number"
        kind += {"baseline": ", or optimal", "end_token": ", or none"}.get(name, "")
        raise UserError(f"{name}={text}: expected {kind}.") from None
    if name == "seed" and number < 0:
        raise UserError(f"seed={text}: expected 0 or more.")
    return number


def _bench(given: dict[str, Any]) -> "Bench":
    from testbed.exact.gradient_report import Bench
    from testbed.exact.response_tree import random_policies, random_tree

    tree = random_tree(given["vocabulary"], given["length"], given["seed"], given["end_token"])
    return Bench(tree, *random_policies(tree, given["drift"], given["seed"]))


def _report(name: str, bench: "Bench", given: dict[str, Any], hyper: dict[str, Any]) -> "GradientReport":
    from testbed.exact.gradient_report import gradient_report, optimal_baselines
    from testbed.exact.group import group_report
    from testbed.objectives import objective

    if hyper:
        refuse(wrong_types(f"objective '{name}'", objective[name].function, hyper))
    common = {"signal": given["signal"], "aggregation": given["aggregation"], **hyper}
    if given["group"] == 1 and given["advantage"] is None:
        return gradient_report(name, bench, baseline=given["baseline"], **common)
    baseline = given["baseline"]
    if baseline == "optimal":
        baseline = optimal_baselines(bench, name, **hyper).scalar if given["signal"] == "R-b" else 0.0
    return group_report(
        name, bench, size=given["group"], advantage=given["advantage"], baseline=baseline, **common
    )


def _print(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    prefix = " ".join(f"{value:.3g}" for value in facts["ess_prefix_T"])
    print(
        f"{facts['leaves']:,} responses, {facts['prefixes']:,} prefixes. J(mu) = {facts['value_mu']:.4g}, "
        f"J(pi) = {facts['value_pi']:.4g}, |grad J| = {facts['gradient_norm']:.4g}.\n"
        f"KL(pi,mu) = {facts['kl_pi_mu']:.4g}, KL(mu,pi) = {facts['kl_mu_pi']:.4g}, "
        f"chi2 = {facts['chi2']:.4g}, Renyi-2 = {facts['renyi2']:.4g}.\n"
        f"ESS/N in the limit: sequence {facts['ess_sequence']:.3g}, token {facts['ess_token']:.3g}, "
        f"prefix by t {prefix}."
    )
    shown = (
        "objective", "signal", "baseline", "relative_bias", "bias_state", "bias_suffix", "bias_clipping",
        "cosine", "relative_deviation", "baseline_is_free",
    )  # fmt: skip
    show.table([{key: row[key] for key in shown} for row in rows])
    print(
        "relative_bias = |E g - grad J| / |grad J| = state + suffix + clipping; relative_deviation = "
        "sqrt(tr Cov g) / |grad J|; gradients in the logits of every prefix."
    )
