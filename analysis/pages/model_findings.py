"""Findings on larger models: what the arena foretold, what size changes, SmolLM2, other engines' rollouts."""

from analysis.experiments.engines import real_rollouts
from analysis.experiments.engines.four_bit_rollouts import FOUR_BITS
from analysis.experiments.engines.real_rollouts import DRIFT
from analysis.experiments.real import foretold_arms, model_size
from analysis.experiments.real.known_model import AREA, ESS
from analysis.pages.finding_facts import Facts
from analysis.pages.markdown_table import table
from analysis.tables.committed import load_committed

SCORES = (
    "task", "lag", "seeds", "predictor", "tau",
    "90 % intervals that hold", "mean width", "mean error", "Brier",
)  # fmt: skip


def of_models(f: Facts) -> list[tuple[str, str]]:
    """Return title and text of these findings."""
    return [
        ("The arena foretells which recipe does better on larger models, not what age costs", _foretold(f)),
        ("Up to a million weights it is undecided whether larger models bear older data", _sizes(f)),
        (
            "SmolLM2: importance weights make data 32 steps old usable; at tuned rates a clip adds nothing",
            "![Accuracy and effective sample size of SmolLM2, from REINFORCE to GRPO](known-ladder.png)\n\n"
            "135 M weights, adapters, 80 steps, each recipe at its best of five rates. Data 32 steps old "
            f"take {f.claim('tuned-reinforce-loses-on-smollm2-at-lag-32')} from REINFORCE's final accuracy. "
            f"Weights per token give {f.claim('importance-weights-help-smollm2-at-the-end')} back. On top of "
            "that, standardized advantages and means over tokens change the mean accuracy along the run by "
            f"{f.claim('standardized-advantages-help-smollm2-on-the-way')}, and a clip of 0.2 by "
            f"{f.claim('a-clip-helps-smollm2-on-the-way')}. All of GRPO together ends "
            f"{f.claim('grpo-beats-reinforce-on-smollm2-at-the-end')} above REINFORCE.\n\nAt a rate of 3e-4, "
            "tuned for no recipe, REINFORCE's accuracy after 56 steps is "
            f"{f.claim('reinforce-fails-on-smollm2-on-old-data')}. GRPO without its clip is "
            f"{f.claim('grpo-without-its-clip-keeps-smollm2-on-old-data')} above it, and the clip adds "
            f"{f.claim('a-clip-helps-smollm2-on-old-data')}. Data 16 steps old take "
            f"{f.claim('old-data-slow-smollm2-down')} from GRPO's mean accuracy along the run, at a sequence "
            f"ESS of {f.claim('smollm2-loses-a-quarter-of-its-sequences')}.",
        ),
        ("On top-p rollouts TIS and IcePop change nothing", _engines(f)),
        ("Rollouts quantized to four bits slow SmolLM2 down; TIS leaves little of that loss", _four_bits(f)),
    ]


def _four_bits(f: Facts) -> str:
    """Return what rollouts in Q4_0 cost SmolLM2, and what two corrections give back."""
    frame = load_committed([FOUR_BITS.name])[FOUR_BITS.name].frame
    found = frame.groupby(["mismatch", "recipe"])[[AREA, "accuracy", ESS, DRIFT]].median()
    rows = (
        (
            name,
            *(
                f"{value:.2f}"
                for value in found[[AREA, "accuracy", ESS]].to_numpy()[found.index.get_loc(arm)]
            ),
        )
        for name, arm in {
            "float32": ("off", "grpo"),
            "Q4_0, uncorrected": ("q4-0", "grpo"),
            "Q4_0, TIS": ("q4-0", "tis"),
            "Q4_0, MIS": ("q4-0", "mis"),
        }.items()
    )
    return (
        "135 M weights, adapters of rank 8 in float32, 48 steps of counting on fresh data. Each arm runs at "
        "its best of four rates, which is 3e-4 for all. Rollouts come from llama.cpp's Q4_0 beneath the "
        f"same adapters, at a KL of up to {found[DRIFT].max():.2f} nats a token. Medians:\n\n"
        + table(("rollouts", "mean accuracy along the run", "final accuracy", "sequence ESS"), rows)
        + f"\n\nUncorrected, they cost {f.claim('q4-0-rollouts-slow-smollm2-down')} of mean "
        "accuracy along the run. Compared with no correction, TIS adds "
        f"{f.claim('tis-gains-on-q4-0-rollouts')} and MIS {f.claim('mis-gains-on-q4-0-rollouts')}, both at "
        "their defaults. Compared with float32 rollouts, "
        f"TIS differs by {f.claim('q4-0-rollouts-cost-smollm2-little-with-tis')} and MIS by "
        f"{f.claim('q4-0-rollouts-cost-smollm2-little-with-mis')}."
    )


def _foretold(f: Facts) -> str:
    """Return the scores of predictions written before the runs, beside two uninformed ones."""
    frame = load_committed([foretold_arms.NAME])[foretold_arms.NAME].frame
    names = ("the arena's task", "mean of the arena's tasks", "age does nothing", "lag times rate")
    lines, best = [], []
    for task, lag in frame.loc[frame["lag"] > 0, ["task", "lag"]].drop_duplicates().itertuples(index=False):
        rows = foretold_arms.of(frame, task, lag)
        scores = foretold_arms.scored(frame, task, lag)
        for name, (_, row) in zip(names, scores.iterrows(), strict=True):
            held = f"{row['inside']:.0f} of {row['recipes']:.0f}"
            scored = (f"{row['tau']:.2f}", held, f"{row['width']:.2f}", f"{row['error']:.2f}")
            lines.append((task, f"{lag}", f"{rows['seed'].nunique()}", name, *scored, f"{row['brier']:.4f}"))
        said = foretold_arms.said(task, lag)["alike"].loc[sorted(set(rows["recipe"]))]
        found = rows.groupby("recipe")["final"].mean().nlargest(3)
        best.append(
            f"on {task} at lag {lag} {', '.join(f'{name} {value:.2f}' for name, value in found.items())}, "
            f"foretold {', '.join(said.nlargest(3).index)}"
        )
    fresh = frame[frame["lag"] == 0].groupby("task")["final"].mean()
    stale = frame[frame["lag"] > 0]
    ends = " and ".join(f"{value:.2f} on {task}" for task, value in fresh.items())
    return (
        "The arena foretold what share of GRPO's accuracy on fresh data each recipe keeps: its sums spoke "
        "for running sums of ten digits, its sorted digits for words of six letters to be spelled backward. "
        "The forecast was committed before models of a million weights ran, at the arena's settings with a "
        "tenth of its rates, untuned on the models.\n\n"
        + table(SCORES, lines)
        + "\n\nKendall's tau of the arena's order on a seed at lag 64 is "
        f"{f.claim('arena-foretells-the-order-of-recipes-at-tau-0')} on running sums and "
        f"{f.claim('arena-foretells-the-order-of-recipes-at-tau-0-on-spelling')} on spelling; at lag 16 it "
        f"is {f.claim('arena-foretells-the-order-of-recipes-at-lag-16')} and "
        f"{f.claim('arena-foretells-the-order-of-recipes-at-lag-16-on-spelling')}. "
        f"The best three: {'; '.join(best)}. {stale['collapsed'].sum():.0f} of {len(stale)} runs "
        f"collapsed. On fresh data GRPO ends at {ends}, "
        "at a rate that was not tuned either."
    )


def _sizes(f: Facts) -> str:
    """Return the loss to lag 64 of models of several sizes, with the tuning runs of the largest."""
    tables = load_committed([model_size.SIZES.name, model_size.RATES.name])
    ends = model_size.weighed(tables[model_size.SIZES.name].frame)
    tried = model_size.weighed(tables[model_size.RATES.name].frame)
    largest = tried[tried["weights"] == tried["weights"].max()]
    best = largest.groupby(["called", "learning_rate"])["accuracy"].median().groupby("called").max()
    medians = {
        f"{size:,}": rows.groupby("called")["accuracy"].median() for size, rows in ends.groupby("weights")
    }
    medians[f"{largest['weights'].iloc[0]:,}, {largest['seed'].nunique()} tuning seeds"] = best
    rows = ((size, *(f"{found[name]:.2f}" for name in model_size.CALLED)) for size, found in medians.items())
    judged = ends[ends["weights"] == ends["weights"].max()].set_index(["called", "seed"])["accuracy"]
    over = judged["VCPO"] - judged["GRPO"]
    return (
        "Models of two layers differ in width alone, on the arena's sums, each arm at its best of five "
        "rates. Final accuracy in the median:\n\n"
        + table(("weights", *model_size.CALLED), rows)
        + "\n\nLag 64 takes accuracy from GRPO with a wide clip. A million weights in place of seven "
        f"thousand save {f.claim('more-weights-lose-less-to-lag-64-at-the-end')} of it at the end and "
        f"{f.claim('more-weights-lose-less-to-lag-64-on-the-way')} along the run; below 0 they lose more. "
        "VCPO ends above it by "
        f"{f.claim('vcpo-gains-over-grpo-with-seven-thousand-weights-at-the-end')} with seven thousand "
        f"weights and by {f.claim('vcpo-gains-over-grpo-with-a-million-weights-at-the-end')} with a million, "
        f"where it ends {over.median():.2f} above GRPO with a clip of 0.2. That clip touches a larger share "
        "of the tokens of a million weights than of seven thousand, by "
        f"{f.claim('a-larger-model-is-clipped-less-at-its-best-rate')} at the best rates and by "
        f"{f.claim('a-larger-model-is-clipped-less-at-one-rate')} at one rate of 3e-4 (a pilot: its design "
        "was not written beside its runs). The best rate falls tenfold from the smallest model to that of "
        "a million weights, as it does for Adam with the width."
    )


def _engines(f: Facts) -> str:
    """Return what other engines' rollouts cost in training, and how far they are from the trainer."""
    engines = {
        "bfloat16": "bfloat16-rollouts-are-near-a-float32-trainer",
        "int8 weights": "int8-rollouts-are-near-a-float32-trainer",
        "FP8 weights in blocks": "fp8-block-rollouts-are-near-a-float32-trainer",
        "llama.cpp's Q8_0": "q8-0-rollouts-are-near-a-float32-trainer",
        "Q4_0": "four-bit-rollouts-are-far-from-a-float32-trainer",
    }
    frame = load_committed([real_rollouts.AT_A_LAG.name])[real_rollouts.AT_A_LAG.name].frame
    ends = real_rollouts.named(frame).groupby(["called", "lag"])["accuracy"].median().unstack()
    asked = {
        "top-p, no correction": "top-p-rollouts-cost-grpo-little-at-lag-0",
        "top-p, TIS": "tis-gains-on-top-p-rollouts-at-lag-0",
        "top-p, MIS": "mis-gains-on-top-p-rollouts-at-lag-0",
        "top-p, IcePop": "icepop-gains-on-top-p-rollouts-at-lag-0",
        "temperature, no correction": "temperature-rollouts-cost-grpo-little-at-lag-0",
        "temperature, TIS": "tis-gains-on-temperature-rollouts-at-lag-0",
        "temperature, MIS": "mis-gains-on-temperature-rollouts-at-lag-0",
        "temperature, IcePop": "icepop-gains-on-temperature-rollouts-at-lag-0",
        "int8, no correction": "int8-rollouts-cost-grpo-little-at-lag-0",
        "bfloat16, no correction": "bfloat16-rollouts-cost-grpo-little-at-lag-0",
    }
    rows = (
        (name, f"{ends[0][name]:.2f}", f"{ends[16][name]:.2f}", f.claim(asked[name]) if name in asked else "")
        for name in ("the trainer itself", *asked)
    )
    return (
        "A model of a million weights learns running sums from rollouts by top-p 0.9, at temperature 0.7, in "
        "int8 or in bfloat16, with corrections at their defaults, each arm at its best of five rates. The "
        "last column compares an uncorrected arm with the trainer's own rollouts, and a corrected arm with "
        "the uncorrected one.\n\n"
        + table(("rollouts", "final, fresh", "at lag 16", "change on fresh data"), rows)
        + "\n\nTop-p leaves tokens out, and no weight brings back what was never sampled. At a low "
        "temperature every token keeps a chance, so that weights could help; what TIS gains there is open. "
        "MIS at its default cap ends below the base model at each of the five rates.\n\n"
        "At equal weights, the KL of SmolLM2's engines to float32, in nats a token and in the median over "
        "prompts, is: "
        f"{'; '.join(f'{name} {f.claim(claim)}' for name, claim in engines.items())}."
    )
