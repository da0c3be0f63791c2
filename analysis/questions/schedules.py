"""Questions about queues and limits of age; the pipeline simulator answers, same streams for all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.questions.question import Numbers, computed

if TYPE_CHECKING:
    from testbed.pipeline.design import Design

STREAMS = "The pipeline simulator, 4 streams of random numbers, 100 batches each; lengths lognormal, sigma 1."


def _base() -> Design:
    from testbed.pipeline.design import Design

    return Design(slots=128, tau_0=0.02, length_mean=500.0, sigma=1.0, batch=64, group=8, train_time=5.0)


def _rows(designs: dict[str, Design]) -> list[dict[str, float | str]]:
    from testbed.pipeline.simulate import simulate

    names = ("samples_per_s", "lag_sample", "lag_largest", "drop_rate", "length_bias")
    found = simulate(list(designs.values()), replicas=4, batches=100)
    return [
        {"rule": rule} | {name: report.mean(name) for name in names}
        for rule, report in zip(designs, found, strict=True)
    ]


@computed(
    2,
    "Old rollouts: drop them, wait, or pace the sampling?",
    "thinking-machines-lab/tinker-cookbook#822",
    "Dropping costs work and shortens what is trained. With a limit of one update, dropping loses "
    "{drop:.0%} of the answers and trains answers {short:.0%} shorter than those generated, at "
    "{drop_speed:.2f} of the speed without a limit. Pacing (admission by capacity, one batch ahead) drops"
    " nothing, has a length bias of {pace_bias:+.1%} and {pace_speed:.2f} of the speed, with a mean lag "
    "of {pace_lag:.2f} for {free_lag:.2f} without a limit. In training, the loss of long answers by "
    "discarding is: {0}; by waiting there is none: {1}.",
    STREAMS + " Groups of 8, 128 slots, 64 answers a batch.",
    ("discarding-takes-the-longest-of-a-start", "waiting-leaves-lengths-alone"),
)
def drop_or_pace() -> Numbers:
    """Return speed, lag, drops and length bias of three rules."""
    base = _base()
    table = _rows(
        {
            "no limit": base,
            "drop above one": replace(base, max_age=1),
            "pace, one ahead": replace(base, admission="capacity", eta=1),
        }
    )
    free, drop, pace = ({key: float(row[key]) for key in row if key != "rule"} for row in table)
    return {
        "table": table,
        "drop": drop["drop_rate"],
        "short": -drop["length_bias"],
        "drop_speed": drop["samples_per_s"] / free["samples_per_s"],
        "pace_bias": pace["length_bias"],
        "pace_speed": pace["samples_per_s"] / free["samples_per_s"],
        "pace_lag": pace["lag_sample"],
        "free_lag": free["lag_sample"],
    }


@computed(
    18,
    "Serve the oldest or the freshest finished group first?",
    "NVIDIA-NeMo/RL#3220",
    "With a queue of four batches and a slow trainer the freshest first lowers the mean lag from "
    "{old:.2f} to {new:.2f} updates, but the largest rises from {old_most:.0f} to {new_most:.0f}: what is"
    " passed over stays. With a limit of four updates the freshest first drops {new_drop:.0%} of the "
    "answers and the oldest first {old_drop:.0%}. Freshness is bought with waste, not found.",
    STREAMS + " The trainer takes 12 seconds a batch; a full queue blocks.",
)
def order() -> Numbers:
    """Return speed, lag and drops by order, with and without a limit of age."""
    base = replace(_base(), queue=4.0, train_time=12.0)
    table = _rows(
        {
            "oldest first": base,
            "freshest first": replace(base, order="lifo"),
            "oldest first, limit 4": replace(base, max_age=4),
            "freshest first, limit 4": replace(base, order="lifo", max_age=4),
        }
    )
    return {
        "table": table,
        "old": table[0]["lag_sample"],
        "new": table[1]["lag_sample"],
        "old_most": table[0]["lag_largest"],
        "new_most": table[1]["lag_largest"],
        "old_drop": table[2]["drop_rate"],
        "new_drop": table[3]["drop_rate"],
    }


@computed(
    31,
    "Does an asynchronous run with a staleness of zero equal the synchronous one?",
    "verl-project/verl#6780",
    "It depends on what is limited. A limit on submissions (none beyond the batch in work) gives a "
    "largest lag of {capacity:.0f}, and a barrier that starts the next batch after the update "
    "{barrier:.0f}. The submissions rule bounds how much is started, which is the lag only if no answer "
    "outlives its batch: {0}. Periodic asynchrony inside one batch is on-policy: {1}. Read the largest "
    "lag from the versions that are stored with the tokens, not from the setting.",
    STREAMS + " The first rule is admission by capacity with eta 0; the versions are those of the simulator.",
    ("capacity-bounds-submissions-not-lag", "periodic-asynchrony-is-on-policy"),
)
def zero() -> Numbers:
    """Return speed and lags of two rules that call themselves zero."""
    base = _base()
    paced = replace(base, admission="capacity", eta=0)
    table = _rows({"admission by capacity, 0": paced, "and a barrier": replace(paced, barrier=True)})
    return {"table": table, "capacity": table[0]["lag_largest"], "barrier": table[1]["lag_largest"]}
