"""Recipes that compute a part from what people tune; those that only pass it on are in recipes.csv."""

from typing import Literal

from testbed.objectives.clipped.holder import holder_exponent
from testbed.recipes import recipe
from testbed.recipes.composition import Baselines, Dual, Recipe, StepRule, Term, pairs
from testbed.recipes.stack_composition import compose


@recipe("grpo", source="Shao et al. (2024), arXiv:2402.03300, Eq. 3 (without the KL term)")
def grpo(
    *, eps_low: float = 0.2, eps_high: float = 0.2, kl_limit: float = 0.0, entropy: float = 0.0
) -> Recipe:
    """Group-standardized advantage, PPO's clip, mean over tokens then over sequences.

    kl_limit: nats per token of KL(mu, pi) above which a step is skipped; 0 skips none. entropy: coefficient
    of an entropy bonus.
    """
    return Recipe(
        "group_std", "ppo_clip", "sequence_mean", objective_args=pairs(eps_low=eps_low, eps_high=eps_high),
        step_rule=StepRule(kl_limit=kl_limit), terms=(Term("entropy_bonus", entropy),) if entropy else (),
    )  # fmt: skip


@recipe("vcpo", source="VCPO (2026), arXiv:2602.17616; constants from the authors' GSM8K script")
def vcpo(
    *,
    cap: float = 8.0,
    ess_reference: float = 1.0,
    baseline: str = "group_std",
    rule: Literal["sqrt", "linear"] = "sqrt",
) -> Recipe:
    """Truncated sequence weights, step size scaled by the ESS share.

    baseline: "group_std" standardizes within the group; "score" and "proxy" subtract the authors' optimal
    baseline, with true gradient norms (one backward pass per sequence) or their logit proxy.
    rule: "sqrt" or "linear" in ESS / ess_reference.
    """
    if baseline == "group_std":
        name, advantage_args = "group_std", pairs(std="population", eps=1e-8)
    else:
        name, advantage_args = "optimal_baseline", pairs(norm=baseline)
    return Recipe(
        name, "importance_reinforce", "sequence_mean", advantage_args=advantage_args,
        objective_args=pairs(level="sequence", cap=cap), step_rule=StepRule(ess_reference, rule),
    )  # fmt: skip


@recipe("holder", source="HölderPO (2026), arXiv:2605.12058")
def holder(*, start: float = 2.0, end: float = -2.0) -> Recipe:
    """Power-mean ratio with an exponent that moves linearly from start to end, mean over sequences."""

    def p(step: int, steps: int) -> float:
        return holder_exponent(step / max(steps - 1, 1), start=start, end=end)

    return Recipe("group_mean", "holder", "constant", length=1, schedules=(("p", p),))


@recipe("ctpo", source="CTPO (2026), arXiv:2605.07331")
def ctpo(*, p: float = 0.5, width: float = 1.0) -> Recipe:
    """Group-standardized advantage, prefix ratios in a window that widens with position^p, token mean.

    width: of the window, in those of the authors' script.
    """
    args = pairs(p=p, b_low=0.025 * width, b_high=0.05 * width, b_c=0.05 * width)
    return Recipe("group_std", "ctpo", "token_mean", objective_args=args)


@recipe("sapo", source="SAPO (2025), arXiv:2511.20347")
def sapo(*, tau: float = 1.0) -> Recipe:
    """Group-standardized advantage, ratio gated by a sigmoid, mean over tokens then sequences.

    tau: temperature of the gate for A > 0; that for A < 0 is 1.05 tau, as in the paper.
    """
    args = pairs(tau_pos=tau, tau_neg=1.05 * tau)
    return Recipe("group_std", "sapo", "sequence_mean", objective_args=args)


@recipe("r2vpo", source="R2VPO (2026), arXiv:2601.03320")
def r2vpo(*, lam: float = 0.04, dual_rate: float = 0.01, budget: float = 0.01, passes: int = 1) -> Recipe:
    """Group-standardized advantage, variance of the ratio held to a budget by a dual variable, token mean.

    The texts that could be read give no dual step size, budget or starting value; these are chosen here.
    passes: updates per batch, the paper's reuse. The dual variable moves once, after the last.
    """
    dual = Dual(dual_rate, budget)
    args = pairs(lam=lam)
    return Recipe("group_std", "r2vpo", "token_mean", objective_args=args, dual=dual, passes=passes)


@recipe("rec", source="Yao et al. (2025), arXiv:2509.24203")
def rec(
    *, keep: str = "oneside", weight: str = "none", eps_low: float = 0.2, eps_high: float = 0.2
) -> Recipe:
    """Group-mean REINFORCE that drops tokens outside a region: oneside, twoside or ring; token mean."""
    args = pairs(weight=weight, eps_low=eps_low, eps_high=eps_high)
    return Recipe("group_mean", f"rec_{keep}", "token_mean", objective_args=args)


@recipe("red", source="Yao et al. (2025), arXiv:2509.24203")
def red(*, how: str = "weight") -> Recipe:
    """Group-mean REINFORCE on reshaped data: "weight" by exp(A), "drop" surplus negatives; token mean."""
    return Recipe("group_mean", f"red_{how}", "token_mean")


@recipe("rapid", source="RAPID (2025), arXiv:2510.03515 (abstract and public reviews; they lack Eq. 4)")
def rapid(*, eta: float = 2.0) -> Recipe:
    """Importance-weighted group baseline, truncated sequence weights, mean over sequences of token sums."""
    return Recipe(
        "importance_mean", "importance_reinforce", "constant", length=1, advantage_args=pairs(eta=eta),
        objective_args=pairs(level="sequence", cap=eta),
    )  # fmt: skip


@recipe("a_star_po", source="A*-PO (2025), arXiv:2505.20686")
def a_star_po(*, beta1: float = 0.5, beta2: float = 1e-3, samples: int = 8) -> Recipe:
    """Regression on R - V*, V* from `samples` responses of the starting policy; mean over sequences."""
    return Recipe(
        "optimal_value", "a_star_po", "constant", length=1, advantage_args=pairs(beta1=beta1),
        objective_args=pairs(beta2=beta2), baselines=Baselines(reference_group=samples),
    )  # fmt: skip


@recipe("opmd", source="Kimi k1.5 (2025), arXiv:2501.12599; Trinity-RFT")
def opmd(*, form: str = "kimi", tau: float = 1.0) -> Recipe:
    """Online policy mirror descent: form "kimi", "pairwise" or "min"; mean over sequences of token sums."""
    return Recipe("group_mean", f"{form}_opmd", "constant", length=1, objective_args=pairs(tau=tau))


@recipe("stack", source="the stack's own, docs/stacks/ (snapshots of 2026)")
def stack(*, of: str = "verl", config: str = "") -> Recipe:
    """Train as a public stack does: its name in `of`, its settings in `config`, e.g. "loss_mode=gspo".

    `testbed objectives from` translates these into our names and prints an equivalent command. If no recipe
    has the stack's anchor, that command sets `anchor=`.
    """
    return compose(of, config.split()).recipe()
