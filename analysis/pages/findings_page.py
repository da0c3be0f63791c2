"""Write docs/findings.md from the arena and the decided claims; every number is read from their tables."""

from analysis.arena import one_setting
from analysis.arena import table as arena
from analysis.arena.tasks import NEAR, PIPELINE, TASKS
from analysis.experiments.arena.arena import AGED, MARGIN
from analysis.judging.verdicts import by_claim
from analysis.pages import short_answers
from analysis.pages.finding_facts import LAG, Facts, in_words
from analysis.pages.markdown_table import table
from analysis.pages.model_findings import of_models

HEAD = """# Findings

What stale data do to policy-gradient training on this bench, in order of use. `testbed evidence pages
findings` writes this page from analysis/verdicts.csv and the arena's tables, so that no result is typed by
hand. Intervals are 95 %. A footnote states the claim behind a number and its verdict; an open verdict also
stands beside the number. `testbed show NAME` prints a claim's evidence. Unless a finding says otherwise, it
holds for transformers of 7,000 to 70,000 weights on tasks of digits, with lags in optimizer steps. Nobody has
tested these findings on a model of a billion weights.
"""
SHORT = ("sorted", "sums")
ASKED = (*SHORT, "guess")
"""Tasks of the claims at LAG."""
FAR, FARTHEST = 256, 400
OLD = (("long", FAR), ("guess", FAR), ("long", FARTHEST))
"""Where the oldest data were used, by task and lag."""

SCOPES = (
    "lags of 2 and 4 to 15, and what a lag below 64 costs a larger model at a tuned rate.",
    "another pipeline, larger mean ages, settings tuned on it, weights that change within a response, any "
    "task but sorted.",
    "all recipes but the twelve at lags of 1, 256 and 400; two knobs of a recipe at once.",
    "the cause, and whether an average over more tasks would name one recipe.",
    "clips beside other recipes; rates and clips between those of the grid; longer budgets.",
    "a task on which the setting was not chosen, where it may lose more; a setting for each kind of task.",
    "REINFORCE with a learned baseline.",
    "lags above 400, and lags of 256 and more on larger models.",
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
"""Limits of each finding, in order."""


def stored() -> list[tuple[str, str]]:
    """Return title and text of every finding of the committed tables."""
    facts = _facts()
    return [*_of_recipes(facts), *_of_old_data(facts), *_of_mechanisms(facts), *of_models(facts)]


def _facts() -> Facts:
    return Facts(arena.load(), arena.tuning(), by_claim())


def page() -> str:
    """Return the page."""
    facts, texts = _facts(), enumerate(zip(stored(), SCOPES, strict=True), 1)
    parts = (f"## {n}. {title}\n\n{text}\n\nNot tested: {scope}\n" for n, ((title, text), scope) in texts)
    body = "\n".join([HEAD, f"## Short answers\n\n{short_answers.table(facts)}\n", *parts])
    return f"{body}\n{facts.footnotes(body)}\n"


def _of_recipes(f: Facts) -> list[tuple[str, str]]:
    held = ", ".join(f"{f.gain(task, 'vcpo')} on {task}" for task in f.tasks)
    topr = ", ".join(f"{f.final(task, 'topr')} on {task}" for task in f.tasks)
    plain = (
        (task, f.final(task, "reinforce"), f.final(task, "grpo"), f.gain(task, "reinforce"))
        for task in f.tasks
    )
    placebo = ", ".join(f"{f.gain(task, 'placebo')} on {task}" for task in f.tasks)
    return [
        (
            "A lag of a few steps has no visible cost; a lag of 64 has one on most tasks",
            "Three steps of lag change GRPO's final accuracy by "
            f"{f.claim('three-steps-of-lag-cost-grpo-less-than-five-points')}. Tuned at a lag of 1, it "
            f"changes by {f.claim('grpo-keeps-fresh-accuracy-at-lag-1-on-sorted')} on sorted and "
            f"{f.claim('grpo-keeps-fresh-accuracy-at-lag-1-on-sums')} on sums. At lag 128, at "
            "a rate tuned for fresh data, it loses "
            f"{f.claim('staleness-costs-grpo-accuracy')}. "
            f"Mean final accuracy of GRPO with rate and clip tuned at each task and lag:\n\n{_of_grpo(f)}",
        ),
        ("A pipeline's mixed ages cost GRPO what a constant lag of their mean does", _of_ages(f)),
        (
            f"Which recipe at lag {LAG}: {_verdict(f)}",
            f"{_ranks(f)}\n\n![Gain over tuned GRPO at lag {LAG}](assets/arena-{LAG}.svg)\n\n"
            "Every recipe's rate and one knob were tuned alike, at that task and lag. VCPO, for example, "
            f"gains {held} over tuned GRPO. The placebo, GRPO under another name and on other seeds, gains "
            f"{placebo}: differences of that size mean nothing, and a gain below it is none. The claims of "
            "experiment `arena` give a verdict for each recipe. [Which to use](arena.md#which-to-use) gives "
            "the answer for the drift measured on a run of your own, with settings and expected loss.",
        ),
        (
            "The best recipe of one task can be the worst of another",
            f"TOPR ends at {topr}. The cause is not known. Where it gains, age has little to do with it: "
            f"at a lag of 1 it is {f.gain('sorted', 'topr', lag=1)} on sorted and "
            f"{f.gain('sums', 'topr', lag=1)} on sums. A table of one task says little about the next.",
        ),
        (
            "A wide clip and a smaller rate for old data, together, give part of what other methods gain",
            f"{_knobs(f)}\n\nThe table shows GRPO's scores in tuning at lag {LAG}, on two to five seeds. A "
            "comparison with GRPO at a clip of 0.2, or at the rate of fresh data, credits the method with "
            "these differences. A finer rate can buy more than either: with rates halfway between those of "
            f"a first grid, a factor of three apart, GRPO's best score on `long` goes {_finer(f)}.",
        ),
        ("What one setting for all tasks and lags costs", _of_one_setting(f)),
        (
            "At lag 64 plain REINFORCE ends below tuned GRPO, or level with it",
            "Mean final accuracy, REINFORCE's rate tuned as GRPO's rate and clip:\n\n"
            + table(("task", "REINFORCE", "GRPO", "difference on the same seeds"), plain),
        ),
    ]


def _of_old_data(f: Facts) -> list[tuple[str, str]]:
    return [
        (
            "Very old data can be used",
            "Each recipe is tuned at its task and lag; `long` sorts 14 digits over 900 steps. Final accuracy "
            f"less that of GRPO, tuned there:\n\n{_at_the_oldest(f)}\n\nThe placebo is GRPO "
            "on other seeds: differences of its size mean nothing. Beside fresh data:\n\n"
            + f.effects(
                ("recipe", "lag", "final accuracy less that of GRPO on fresh data"),
                (
                    (arm.upper(), str(lag), f"{arm}-keeps-fresh-accuracy-at-lag-{lag}-on-long")
                    for arm, lag in (
                        *(("vcpo", FAR), ("m2po", FAR), ("grpo", FAR)),
                        *(("topr", FARTHEST), ("vcpo", FARTHEST), ("grpo", FARTHEST)),
                    )
                ),
            )
            + "\n\nIn other worlds lag 128 changes VCPO's final accuracy by "
            f"{f.claim('vcpo-at-lag-128-is-as-good-as-on-policy')}. On models of a million weights, at lag "
            f"64, VCPO ends {f.claim('vcpo-ends-above-grpo-on-larger-models')} above GRPO.",
        ),
        (
            "REC's clip is what old data need; importance weights beside it cost accuracy",
            f.effects(
                ("each arm tuned, sorting ten digits", "at", "difference of final accuracy"),
                (
                    ("clip, less clip and weights", "at worst", "tuned-rec-clip-alone-ends-no-lower"),
                    ("clip, less clip and weights", "at most", "tuned-rec-importance-weights-change-nothing"),
                    ("clip, less no clip", "lag 64", "tuned-rec-clip-gains-at-lag-64"),
                    ("clip, less no clip", "fixed data", "tuned-rec-clip-gains-offline"),
                ),
            )
            + "\n\nAt one rate the clip prevents collapse on fixed data: where one of two runs on a seed "
            "collapses, it is the one without the clip on a share of "
            f"{f.claim('rec-clip-prevents-collapse')}. Where nothing else limits the ratio, weights make old "
            "data usable: finding 17.",
        ),
        (
            "Watch the entropy before the effective sample size",
            "At lag 256 and one rate for all, some of six recipes collapse later. The mean of the first 200 "
            "of 600 steps foretells which. On models of a million weights the first 40 steps were to tell "
            "which runs end low.\n\n"
            + f.effects(
                ("early sign", "weights", "AUROC"),
                (
                    ("small ESS", "7,000", "ess-ranks-collapses-at-one-lag-and-rate"),
                    (
                        "small entropy, more than ESS by",
                        "7,000",
                        "entropy-warns-better-than-ess-at-one-lag-and-rate",
                    ),
                    ("small ESS", "1,000,000", "early-ess-ranks-losses-of-larger-models"),
                ),
            ),
        ),
    ]


def _of_mechanisms(f: Facts) -> list[tuple[str, str]]:
    return [
        ("Asynchrony is faster because nobody waits for the longest response", _of_pipelines(f)),
        (
            "Engines: formats as coarse as FP8 did not break training here, fewer layers cost accuracy",
            f.effects(
                ("rollouts, uncorrected unless stated", "outcome", "effect"),
                (
                    ("FP8", "share of seeds that collapse", "fp8-rollouts-collapse-most-seeds"),
                    (
                        "weights off by a fifth",
                        "share of lone collapses, of two runs on a seed, that are its own",
                        "strong-rollout-noise-collapses-the-trainer",
                    ),
                    (
                        "one of eight layers left out",
                        "change of final accuracy",
                        "no-weights-keep-accuracy-without-an-eighth-of-the-layers",
                    ),
                    (
                        "the same, with weights by token",
                        "change of final accuracy",
                        "token-weights-keep-accuracy-without-an-eighth-of-the-layers",
                    ),
                ),
            )
            + "\n\nThe layer that is left out is drawn anew for every batch.",
        ),
        (
            "Published gains over GRPO depend on the task once GRPO is tuned",
            f"Each recipe was to gain 0.05 over tuned GRPO at lag {LAG}, on every task that it ran.\n\n"
            f'{_by_verdict(f)}\n\n"Undecided" mostly means a gain on one task and none on another.',
        ),
        (
            "Several updates on a fresh batch",
            "The number of updates on a batch is tuned for each recipe but GRPO with one.\n\n"
            + f.effects(
                ("recipe", "rival", "task", "gain in mean accuracy along the run"),
                (
                    (recipe, rival, task, f"{stem}-on-{task}")
                    for recipe, rival, stem in (
                        ("SFPO", "GRPO, one update", "sfpo-learns-faster-than-grpo"),
                        ("SFPO", "GRPO, its best number", "sfpo-learns-faster-than-reused-grpo"),
                        ("ReMix", "GRPO, its best number", "remix-learns-faster-than-reused-grpo"),
                    )
                    for task in SHORT
                ),
            )
            + "\n\nTo reach an accuracy of 0.62 on sorted, GRPO with one update needs "
            f"{f.factor('remix-needs-a-third-of-the-rollouts-of-grpo')} times ReMix's "
            "rollouts; a factor of 3 was asked.",
        ),
    ]


def _of_pipelines(f: Facts) -> str:
    rows = (
        ("decoupled", "synchronous", "decoupled-actors-are-faster-than-waiting"),
        ("online DPO one step off", "in turn", "one-step-off-online-dpo-is-faster"),
        ("VCPO at lag 16", "on-policy on the whole pool", "vcpo-is-2.5-times-as-fast-at-lag-16"),
        ("VCPO at lag 128", "on-policy on the whole pool", "vcpo-is-2.5-times-as-fast-at-lag-128"),
    )
    return (
        "Time to the same accuracy, by the clock of simulated pipelines:\n\n"
        + f.effects(("learner", "compared with", "times as fast"), rows, f.factor)
        + "\n\nAt lag 128 VCPO takes more updates. Where response lengths have a heavy tail, dropping "
        "groups older than one update shortens trained responses by a fifth or "
        "more[^discard-stale-shortens-responses]. With weights that change within a response, a recomputed "
        "cache leaves every token in the distribution of some version; a kept cache leaves it in that of "
        "none."
    )


def _verdict(f: Facts) -> str:
    """Return which recipes gain the arena's margin over tuned GRPO on every task, with the whole interval."""
    arms = set.intersection(*(set(f.best(task, count=len(f.frame))) for task in f.tasks))
    names = [
        arm.upper().replace("_", "-")
        for arm in sorted(arms - {"grpo", "placebo"})
        if all(f.interval(task, arm)[0] > MARGIN for task in f.tasks)
    ]
    gains = f"{' and '.join(names)} alone gain{'s' * (len(names) == 1)}" if names else "none gains"
    return f"{gains} {MARGIN:g} on every task"


def _of_ages(f: Facts) -> str:
    ends = {arm: f.aged(arm) for arm in AGED}
    higher = [arm for arm, (low, _, _) in ends.items() if low > 0]
    lower = [arm for arm, (_, _, high) in ends.items() if high < 0]
    rows = [
        (arm, f.final("sorted", arm, NEAR), f.final("sorted", arm, PIPELINE), in_words(*found))
        for arm, found in ends.items()
    ]
    stem = "a-pipelines-ages-{}-on-sorted"
    return (
        "A simulated pipeline with in-flight updates drops groups older than 40 updates. Its ages run from 3 "
        "to 40 with a mean of 16. Recipes ran on them at the settings tuned at lag 16. Compared with lag 16, "
        f"they change GRPO's final accuracy by {f.claim(stem.format('cost-grpo-what-their-mean-does'))}, and "
        f"the mean of ten recipes by {f.claim(stem.format('cost-recipes-what-their-mean-does'))}. The order "
        "of the recipes on a seed agrees with their mean order at lag 16 a little less than the order at lag "
        f"16 does: Kendall's tau changes by {f.claim(stem.format('rank-recipes-as-their-mean-does'))}. The "
        "placebo, GRPO under another name and on other seeds, differs from GRPO by "
        f"{f.claim('the-placebo-equals-grpo-on-a-pipelines-ages-on-sorted')}. Not asked beforehand: higher "
        f"than at the constant lag end {', '.join(higher) or 'none'}; lower {', '.join(lower) or 'none'}.\n\n"
        + table(("recipe", "lag 16", "pipeline", "difference on the same seeds"), rows)
    )


def _of_one_setting(f: Facts) -> str:
    found = one_setting.losses(f.frame, ["arm"]).sort_values("loss")
    rows = [
        (row["arm"], f"{row['own']:.2f}", f"{row['one']:.2f}", in_words(row["low"], row["loss"], row["high"]))
        for row in arena.records(found)
    ]
    places = ", ".join(f"lag {lag} on {task}" for task, lag in one_setting.places())
    best = {of: found.nlargest(3, of) for of in ("own", "one")}
    order = {
        of: ", ".join(f"{row.arm} {getattr(row, of):.2f}" for row in best[of].itertuples()) for of in best
    }
    return (
        "If you cannot tune at every task and lag, you fix a recipe's rate and knob beforehand. The table "
        "compares mean final accuracy at each place's own setting with that at one setting for all: the one "
        "that scores best in tuning over the recipe's stale tasks and lags. Both are on "
        f"{len(one_setting.SEEDS)} other seeds, at {places}. Where both settings agree, the loss is 0. The "
        f"order of recipes changes: tuned everywhere, {order['own']} are the best; at one setting, "
        f"{order['one']}.\n\n" + table(("recipe", "each its own", "one setting", "lost"), rows)
    )


def _ranks(f: Facts) -> str:
    rows = [
        (
            task,
            str(lag),
            f.final(task, "grpo", 0),
            ", ".join(f"{arm} {f.final(task, arm, lag)}" for arm in f.best(task, lag)),
            f.final(task, "grpo", lag),
        )
        for task in TASKS
        for lag in f.lags(task)
    ]
    return table(
        ("task", "lag", "GRPO, fresh", "best five of the recipes, mean final accuracy", "GRPO"), rows
    )


def _at_the_oldest(f: Facts) -> str:
    """Return what each recipe has more than GRPO at the places of OLD, best at the first one first."""
    ran = {place: f.best(*place, len(f.frame)) for place in OLD}
    rows = (
        (arm, *(f.gain(task, arm, lag=lag) if arm in arms else "–" for (task, lag), arms in ran.items()))
        for arm in dict.fromkeys(arm for arms in ran.values() for arm in arms)
        if arm != "grpo"
    )
    return table(("recipe", *(f"{task}, lag {lag}" for task, lag in OLD)), rows)


def _of_grpo(f: Facts) -> str:
    """Return GRPO's mean final accuracy by task and lag, tuned at each."""
    lags = (0, 1, NEAR, LAG, FAR, FARTHEST)
    rows = (
        (task, *(f.final(task, "grpo", lag) if lag in {0, *f.lags(task)} else "–" for lag in lags))
        for task in TASKS
    )
    return table(("task", "fresh data", *(f"lag {lag}" for lag in lags[1:])), rows)


def _knobs(f: Facts) -> str:
    head = (
        "task",
        "fresh data's rate, clip 0.2",
        "its rate, best clip",
        "best rate, clip 0.2",
        "both tuned",
    )
    return table(head, ((task, *f.by_clip_and_rate(task)) for task in f.tasks))


def _finer(f: Facts) -> str:
    pairs = ((lag, *f.by_grid("long", lag)) for lag in (LAG, FAR, FARTHEST))
    return ", ".join(f"from {coarse:.2f} to {fine:.2f} at lag {lag}" for lag, coarse, fine in pairs)


def _by_verdict(f: Facts) -> str:
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    rows = ((stem, *(words.get(task, "–") for task in ASKED)) for stem, words in sorted(found.items()))
    return table(("recipe", *ASKED), rows)
