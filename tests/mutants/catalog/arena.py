"""Bugs planted in what stands around the arena's table: a user's recipe, advice, the page and its picture."""

from mutants.mutant import Mutant

OWN, ADVICE, PICTURE = (f"analysis/arena/{name}.py" for name in ("own", "advice", "picture"))
IN_OWN = "tests/unit/analysis/test_arena.py -k 'refused or pinned or fails'"
IN_ADVICE = "tests/unit/analysis/test_arena_advice.py"

MUTANTS = (
    Mutant("arena-edited-file-keeps-its-runs", OWN, "pinned = pin(recipe)", "pinned = recipe", IN_OWN),
    Mutant("arena-folder-in-the-name", OWN, 'Path(pinned.partition("#")[0]).name', 'pinned.partition("#")[0]', IN_OWN),
    Mutant("arena-committed-name-is-run", OWN, 'if arm in set(rows["arm"]):', "if False:", IN_OWN),
    Mutant("arena-knob-values-unsorted", OWN, "values = sorted(float(value) for value in", "values = list(float(value) for value in", IN_OWN),
    Mutant("arena-failed-run-unexplained", OWN, "if not failures:", "if True:", IN_OWN),
    Mutant("arena-sweep-of-another-text", OWN, "place = folder / digest", "place = folder", "tests/unit/analysis/test_arena.py -k add_ranks"),
    Mutant("advice-loss-of-the-first-run", ADVICE, 'part.loc[part["run"] == "replication", "loss"].to_numpy()', 'part["loss"].to_numpy()', IN_ADVICE),
    Mutant("advice-ordered-by-the-replication", ADVICE, 'part.loc[part["run"] == "first", "loss"].mean()', 'part.loc[part["run"] != "first", "loss"].mean()', IN_ADVICE),
    Mutant("advice-placebo-recommended", ADVICE, 'frame[frame["arm"] != "placebo"]', "frame", IN_ADVICE),
    Mutant("advice-of-half-the-cells", ADVICE, 'if row["tasks"] == len(near)]', "if row]", IN_ADVICE),
    Mutant("advice-without-headroom", ADVICE, "fresh[fresh.between(LOW, HIGH)].index", "fresh.index", IN_ADVICE),
    Mutant("advice-outside-the-range", ADVICE, "if near.empty:", "near = cells if near.empty else near\n    if near.empty:", IN_ADVICE),
    Mutant("advice-clip-of-one-sign", ADVICE, "torch.where(tokens.adv_N > 0, ratio_N > 1 + CLIP, ratio_N < 1 - CLIP)", "(ratio_N > 1 + CLIP)", IN_ADVICE),
    Mutant("arena-picture-worst-first", PICTURE, 'sort_values(["count", "mean"], ascending=False)', 'sort_values(["count", "mean"])', IN_ADVICE),
    Mutant("arena-picture-names-unescaped", PICTURE, "{more}>{escape(text)}</text>", "{more}>{text}</text>", IN_ADVICE),
)  # fmt: skip
