"""prime-rl: settings under trainer.loss."""

from testbed.stacks import Key, Refusal, Rule, Stack, Their

STACK = Stack(
    name="prime-rl",
    title="prime-rl",
    source="PrimeIntellect-ai/prime-rl 559b4477 2026-08-21, src/prime_rl/trainer/rl/loss.py, "
    "packages/prime-rl-configs (DefaultLossConfig)",
    keys=(
        Key("type", "default", "trainer.loss"),
        Key("dppo_mask_low", 0.2, "trainer.loss"),
        Key("dppo_mask_high", 0.2, "trainer.loss"),
        Key("adv_tau", 1.0, "trainer.loss"),
        Key("kl_tau", 1e-3, "trainer.loss"),
    ),
    objectives=(
        Rule(
            {"type": "default"},
            "dppo_tv@prime-rl",
            {
                "d_low": Their("dppo_mask_low"),
                "d_high": Their("dppo_mask_high"),
                "adv_tau": Their("adv_tau"),
                "kl_tau": Their("kl_tau"),
            },
        ),
    ),
    aggregations=(Rule({}, "token_mean"),),
    advantages=(Rule({}, "group_mean"),),
    anchors=(Rule({}, "behavior"),),
    refusals=(
        Refusal({"type": "ipo"}, "its mask ignores the sign of the advantage; dppo_tv's does not."),
        Refusal(
            {"type": "custom"},
            "a function of yours: `testbed run … --objective FILE.py:FUNCTION` takes one here.",
        ),
    ),
    traps=(
        "The masks are on a difference of probabilities, pi - mu, and not on a ratio; its documentation once "
        "showed min(pi/mu, delta), and the loss has no such cap: a rare token's ratio has no bound.",
        "Masked tokens stay in the denominator and still feel kl_tau, which pulls towards the sampler, not "
        "to a reference.",
        "`adv_tau` is called a temperature and multiplies: 2 doubles the advantage.",
        "Advantages are R - mean of the group, without a std.",
        "There is no trainer's anchor: every ratio is pi/mu of the engine.",
    ),
)
