"""Writes docs/findings.md from the arena and the decided claims: every number is read from their tables."""

from analysis.arena import one_setting, table
from analysis.arena.tasks import NEAR, PIPELINE, TASKS
from analysis.experiments.lag.arena import AGED
from analysis.judging.verdicts import by_claim
from analysis.pages import short_answers
from analysis.pages.finding_facts import LAG, Facts
from analysis.pages.model_findings import of_models

HEAD = """# Findings

What stale data do to policy-gradient training on this bench, in order of use. Written by `testbed evidence
pages findings` from analysis/verdicts.csv and the arena's tables; no number here is typed by hand. A claim's
name opens its evidence: `testbed show NAME`. Intervals are 95 %. Unless a finding says otherwise it was found
on transformers of 7,000 to 70,000 weights, on tasks of digits, with lags in optimizer steps. What holds on a
model of a billion weights is not known.
"""
SHORT = ("sorted", "sums")
ASKED = (*SHORT, "guess")
"""Tasks of the claims at LAG."""

SCOPES = (
    "lags of 4 to 15, and what a lag below 64 costs a larger model at a tuned rate.",
    "another pipeline, larger mean ages, settings tuned on it, weights that change within a response, any "
    "task but sorted.",
    "lag 1, where old data cost nothing that a recipe could save; lag 400 with rates inside their grids; two "
    "knobs of a recipe at once.",
    "why, and whether an average over more tasks would name one recipe.",
    "clips beside other recipes; rates and clips between those of the grid; longer budgets.",
    "a task on which the setting was not chosen, where it may lose more; a setting for each kind of task.",
    "REINFORCE with a learned baseline; lag 400.",
    "lags above 256 at tuned rates, and lag 256 on larger models.",
    "weights with and without, each at its own tuned rate, beside other clips.",
    "entropy as a sign on larger models, at lags below 256, or to stop a run in time.",
    "what in-flight updates cost in accuracy apart from the ages they give; clusters in operation.",
    "FP8 units themselves, horizons beyond 100 tokens, models whose weights have outliers, deeper models.",
    "recipes with more than one knob tuned; lags other than 64 for most of them; the tasks marked –.",
    "seconds, and reuse of stale batches.",
    "tuned settings on the larger models, lag 256, other tasks.",
    "other tasks, depth in place of width, ten million weights on judged seeds, longer training.",
    "other clips and other recipes on this model, longer tasks.",
    "longer training, other tasks, caps and windows of the corrections.",
    "stale data, other formats and tasks, all weights trained, larger models, other caps.",
)
"""What is beyond each finding, in order."""


def stored() -> list[tuple[str, str]]:
    """Return title and text of every finding of the committed tables."""
    facts = _facts()
    return [*_of_recipes(facts), *_of_mechanisms(facts), *of_models(facts)]


def _facts() -> Facts:
    return Facts(table.load(), table.tuning(), by_claim())


def page() -> str:
    """Return the page."""
    texts = enumerate(zip(stored(), SCOPES, strict=True), 1)
    parts = (f"## {n}. {title}\n\n{text}\n\nNot tested: {scope}\n" for n, ((title, text), scope) in texts)
    return "\n".join([HEAD, f"## Short answers\n\n{short_answers.table(_facts())}\n", *parts])


def _of_recipes(f: Facts) -> list[tuple[str, str]]:
    fresh = ", ".join(f"{f.final(task, 'grpo', 0)} to {f.final(task, 'grpo')} on {task}" for task in f.tasks)
    held = ", ".join(f"{f.gain(task, 'vcpo')} on {task}" for task in f.tasks)
    topr = ", ".join(f"{f.final(task, 'topr')} on {task}" for task in f.tasks)
    plain = ", ".join(f"{f.gain(task, 'reinforce')} on {task}" for task in f.tasks)
    placebo = ", ".join(f"{f.gain(task, 'placebo')} on {task}" for task in f.tasks)
    return [
        (
            "A lag of a few steps costs nothing that can be seen; a lag of 64 does",
            "Three steps of lag change GRPO's final accuracy by "
            f"{f.claim('three-steps-of-lag-cost-grpo-less-than-five-points')}. "
            f"At lag {LAG}, with rate and clip tuned there, GRPO falls from {fresh}. At lag 128, "
            "at a rate tuned for fresh data, it loses "
            f"{f.claim('staleness-costs-grpo-accuracy')}.",
        ),
        (
            "What a pipeline's spread of ages costs beside a constant lag of the same mean",
            _of_ages(f),
        ),
        (
            f"Which recipe at lag {LAG}: {_verdict(f)}",
            f"{_ranks(f)}\n\n![Gain over tuned GRPO at lag {LAG}](assets/arena-{LAG}.svg)\n\n"
            "Every recipe's rate and one knob were tuned alike, at that task and lag. VCPO, "
            f"to take one, gains {held} over tuned GRPO. The placebo, GRPO under another name and on other "
            f"seeds, gains {placebo}: differences of that size mean nothing. Verdicts per recipe: claims of "
            "experiment `arena`. The answer by drift measured on a run, with settings and expected loss: "
            "[which to use](arena.md#which-to-use).",
        ),
        (
            "The best recipe of one task can be the worst of another",
            f"TOPR ends at {topr}. Why is not settled here; what follows is that a table of one task says "
            "little of the next.",
        ),
        (
            "A wide clip alone gives part of the gain of other methods; a smaller rate gives little",
            f"{_knobs(f)}\n\nScores of GRPO in tuning at lag {LAG}, on two to five seeds. A comparison with "
            "GRPO at clip 0.2, or at the rate of fresh data, gives a method that much for nothing.",
        ),
        ("What one setting for all tasks and lags costs", _of_one_setting(f)),
        (
            "Plain REINFORCE is no baseline at lag 64",
            f"With its rate tuned it ends below or beside tuned GRPO: {plain}.",
        ),
    ]


def _of_mechanisms(f: Facts) -> list[tuple[str, str]]:
    return [
        (
            "Very old data can be used",
            "On long, sorting 14 digits for 900 steps, tuned at lag 256, M2PO ends at most 0.05 below GRPO "
            f"on fresh data: {f.claim('m2po-keeps-fresh-accuracy-at-lag-256-on-long')}; VCPO: "
            f"{f.claim('vcpo-keeps-fresh-accuracy-at-lag-256-on-long')}; and GRPO itself: "
            f"{f.claim('grpo-keeps-fresh-accuracy-at-lag-256-on-long')}. In other worlds VCPO ends at lag "
            "128 as high as on fresh data: "
            f"{f.claim('vcpo-at-lag-128-is-as-good-as-on-policy')}; without its two parts, at a third of the "
            "rate, .04 lower. It ends above GRPO on models of a million "
            f"weights, at lag 64, by {f.claim('vcpo-ends-above-grpo-on-larger-models')}.",
        ),
        (
            "Importance weights hurt at a full rate and are nearly idle at a small one",
            "Beside REC's clip they change the final accuracy by "
            f"{f.claim('rec-importance-weights-change-nothing')} at a rate of 0.003 and lag 16, where "
            f"the clip alone is no worse at any lag, {f.claim('rec-clip-alone-ends-no-lower')}, and "
            f"by {f.claim('rec-slow-importance-weights-change-nothing')} at a tenth of it. The clip is "
            "what prevents collapse on offline "
            f"data: share of seeds {f.claim('rec-clip-prevents-collapse')}. On SmolLM2 the weights "
            "make old data usable: see the last finding.",
        ),
        (
            "Watch the entropy before the effective sample size",
            "At lag 256 and one rate, the mean of the first 200 of 600 steps foretells which of six recipes "
            "collapses later: a small entropy better than a small ESS, difference of AUROC "
            f"{f.claim('entropy-warns-better-than-ess-at-one-lag-and-rate')}; AUROC of the ESS, which had to "
            f"be above 0.8, {f.claim('ess-ranks-collapses-at-one-lag-and-rate')}. On models of a million "
            "weights a small ESS in the first 40 "
            "steps does not tell which runs end low: AUROC "
            f"{f.claim('early-ess-ranks-losses-of-larger-models')}.",
        ),
        (
            "Asynchrony is faster because nobody waits for the longest response",
            _of_pipelines(f),
        ),
        (
            "Engines: formats as coarse as FP8 did not break training here, fewer layers cost accuracy",
            "Share of seeds on which FP8 rollouts made the trainer collapse: "
            f"{f.claim('fp8-rollouts-collapse-most-seeds')}. Errors as "
            f"large as a fifth of the weights do: {f.claim('strong-rollout-noise-collapses-the-trainer')}. "
            "Where rollouts leave out one of eight layers, drawn anew for every batch, accuracy moves by "
            f"{f.claim('no-weights-keep-accuracy-without-an-eighth-of-the-layers')}, with weights "
            f"by token by {f.claim('token-weights-keep-accuracy-without-an-eighth-of-the-layers')}.",
        ),
        (
            "Published gains over GRPO depend on the task once GRPO is tuned",
            f"Asked was a gain of 0.05 over tuned GRPO at lag {LAG} on every task that the recipe ran.\n\n"
            f'{_by_verdict(f)}\n\n"Undecided" mostly means a gain on one task and none on another.',
        ),
        (
            "Several updates on a fresh batch",
            "Mean accuracy along the run, the number of updates tuned for both. SFPO over GRPO with one: "
            f"{f.on('sfpo-learns-faster-than-grpo', SHORT)}; over GRPO with as many as it likes: "
            f"{f.on('sfpo-learns-faster-than-reused-grpo', SHORT)}. ReMix: "
            f"{f.on('remix-learns-faster-than-reused-grpo', SHORT)}. To an accuracy of 0.62 "
            "on sorted GRPO with one update needs about three times ReMix's rollouts: the factor's "
            f"logarithm, 1.1 being asked, is {f.claim('remix-needs-a-third-of-the-rollouts-of-grpo')}.",
        ),
    ]


def _of_pipelines(f: Facts) -> str:
    return (
        "In simulated pipelines a decoupled learner reaches the same level sooner than a synchronous "
        "one, by a log factor of "
        f"{f.claim('decoupled-actors-are-faster-than-waiting')}. Dropping groups older than one update "
        "shortens trained responses "
        f"where lengths have a heavy tail: {f.claim('discard-stale-shortens-responses')}. On the "
        "clock of such a pipeline online DPO one step off reaches the same accuracy more than 1.2 times "
        f"as fast, log factor beyond that {f.claim('one-step-off-online-dpo-is-faster')}; VCPO at lag 16 "
        f"more than 2.5 times, {f.claim('vcpo-is-2.5-times-as-fast-at-lag-16')}, and at lag 128, where "
        f"it takes more updates, less: {f.claim('vcpo-is-2.5-times-as-fast-at-lag-128')}. With weights "
        "that change within a response and a recomputed cache every token comes from some version's "
        "distribution; with a kept cache from no version's."
    )


def _verdict(f: Facts) -> str:
    """Return which recipes gain over tuned GRPO on every task, by their intervals."""
    arms = set.intersection(*(set(f.frame[f.frame["task"] == task]["arm"]) for task in f.tasks))
    lows = {arm: [f.interval(task, arm)[0] for task in f.tasks] for arm in arms - {"grpo", "placebo"}}
    found = sorted(arm for arm, low in lows.items() if min(low) > 0)
    names = [arm.upper().replace("_", "-") for arm in found]
    return (
        f"{' and '.join(names)} alone gain{'s' * (len(names) == 1)} on every task"
        if names
        else "none gains on every task"
    )


def _of_ages(f: Facts) -> str:
    ends = {arm: f.aged(arm) for arm in AGED}
    higher = [arm for arm, (low, _, _) in ends.items() if low > 0]
    lower = [arm for arm, (_, _, high) in ends.items() if high < 0]
    rows = [
        f"| {arm} | {f.final('sorted', arm, NEAR)} | {f.final('sorted', arm, PIPELINE)} "
        f"| {center:+.2f} [{low:.2f}, {high:.2f}] |"
        for arm, (low, center, high) in ends.items()
    ]
    stem = "a-pipelines-ages-{}-on-sorted"
    return (
        "Ages of a simulated pipeline with in-flight updates and groups dropped beyond an age of 40: 3 to "
        "40 updates, mean 16. Recipes ran on them at the settings tuned at lag 16. Final accuracy less that "
        f"at lag 16, of GRPO: {f.claim(stem.format('cost-grpo-what-their-mean-does'))}; of ten recipes in "
        f"the mean: {f.claim(stem.format('cost-recipes-what-their-mean-does'))}. Kendall's tau of their "
        "order on a seed with their mean order at lag 16, less that of lag 16 on the same seed: "
        f"{f.claim(stem.format('rank-recipes-as-their-mean-does'))}. GRPO under another name, on other "
        f"seeds, less GRPO: {f.claim('the-placebo-equals-grpo-on-a-pipelines-ages-on-sorted')}. Not asked "
        "beforehand: higher than at "
        f"the constant lag end {', '.join(higher) or 'none'}, lower {', '.join(lower) or 'none'}.\n\n"
        + "\n".join(
            ["| recipe | lag 16 | pipeline | difference on the same seeds |", "|---" * 4 + "|", *rows]
        )
    )


def _of_one_setting(f: Facts) -> str:
    found = one_setting.losses(f.frame, ["arm"]).sort_values("loss")
    rows = [
        f"| {row.arm} | {row.own:.2f} | {row.one:.2f} | {row.loss:+.2f} [{row.low:.2f}, {row.high:.2f}] |"
        for row in found.itertuples()
    ]
    places = ", ".join(f"{task} {lag}" for task, lag in one_setting.places())
    best = {of: found.nlargest(3, of) for of in ("own", "one")}
    order = {
        of: ", ".join(f"{row.arm} {getattr(row, of):.2f}" for row in best[of].itertuples()) for of in best
    }
    return (
        "Whoever cannot tune at every task and lag fixes a recipe's rate and knob beforehand. Below is the "
        "mean final accuracy at each task's and lag's own setting and at the one that scores best in tuning "
        f"over all of a recipe's stale tasks and lags, on {len(one_setting.SEEDS)} other seeds; task and "
        f"lag: {places}. Where both settings are one the loss is 0. The order of recipes changes: tuned "
        f"everywhere {order['own']} are the best, at one setting {order['one']}.\n\n"
        + "\n".join(["| recipe | each its own | one setting | lost |", "|---" * 4 + "|", *rows])
    )


def _ranks(f: Facts) -> str:
    lines = [
        "| task | lag | GRPO, fresh | best five of the recipes, mean final accuracy | GRPO |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        for lag in sorted(set(f.frame[f.frame["task"] == task]["lag"]) - {0, PIPELINE}):
            best = ", ".join(f"{arm} {f.final(task, arm, lag)}" for arm in f.best(task, lag))
            fresh, stale = f.final(task, "grpo", 0), f.final(task, "grpo", lag)
            lines.append(f"| {task} | {lag} | {fresh} | {best} | {stale} |")
    return "\n".join(lines)


def _knobs(f: Facts) -> str:
    lines = [
        "| task | fresh data's rate, clip 0.2 | its rate, best clip | best rate, clip 0.2 | both tuned |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {task} | {' | '.join(f.by_clip_and_rate(task))} |" for task in f.tasks)])


def _by_verdict(f: Facts) -> str:
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    lines = [f"| recipe | {' | '.join(ASKED)} |", "|---" * (len(ASKED) + 1) + "|"]
    rows = (
        f"| {stem} | {' | '.join(words.get(task, '–') for task in ASKED)} |"
        for stem, words in sorted(found.items())
    )
    return "\n".join([*lines, *rows])
