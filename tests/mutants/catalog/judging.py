"""Bugs planted in bets, evidence, the rule, verdicts, gates and the status of systems."""

from mutants.mutant import Mutant

BETS, EVIDENCE, RULE, VERDICTS, CLAIMS, GATES, SYSTEMS, POWER, DIGESTS = (
    f"analysis/judging/{name}.py"
    for name in (
        "bets",
        "evidence",
        "rule",
        "verdicts",
        "claims",
        "gates",
        "systems",
        "seed_power",
        "digests",
    )
)
OF_BETS, OF_EVIDENCE, OF_RULE, OF_VERDICTS, OF_POWER = (
    f"tests/unit/analysis/test_{name}.py" for name in ("bets", "evidence", "rule", "verdicts", "seed_power")
)
SENTENCES, COMPARISON = "analysis/judging/sentences.py", "analysis/judging/comparison.py"
OF_SENTENCES = "tests/unit/analysis/test_sentences.py"
TABLE_GATES, OF_TABLE_GATES = "analysis/judging/table_gates.py", "tests/unit/analysis/test_table_gates.py"
DESIGN_GATES, OF_DESIGN_GATES = "analysis/judging/design_gates.py", "tests/unit/analysis/test_design_gates.py"
OF_SYSTEMS = "tests/experiments/test_systems.py"

MUTANTS = (
    Mutant(
        "gates-let-one-end-pass", TABLE_GATES, "for end in (0, 1) if", "for end in (0,) if", OF_TABLE_GATES
    ),
    Mutant(
        "gates-take-twins-for-two-arms", TABLE_GATES, "min(shares) >= SAME", "min(shares) > 1", OF_TABLE_GATES
    ),
    Mutant(
        "gates-want-one-arm-piled",
        TABLE_GATES,
        "if all((np.abs(x_N - end)",
        "if any((np.abs(x_N - end)",
        OF_TABLE_GATES,
    ),
    Mutant(
        "gates-never-ask-for-room", TABLE_GATES, "if room < check.margin:", "if room < 0:", OF_TABLE_GATES
    ),
    Mutant(
        "gates-forget-the-edge",
        TABLE_GATES,
        "if x_N.size and x_N.max() > 0",
        "if x_N.size and x_N.max() > 1",
        OF_TABLE_GATES,
    ),
    Mutant(
        "gates-read-no-arms",
        "analysis/judging/comparisons.py",
        "if (read := _READ.get()) is not None and found.size:",
        "if (read := None) is not None:",
        OF_TABLE_GATES,
    ),
    Mutant(
        "gates-let-the-loser-pass",
        DESIGN_GATES,
        "better = int(np.argmax(middle))",
        "better = int(np.argmin(middle))",
        OF_DESIGN_GATES,
    ),
    Mutant("gates-let-everybody-pass", DESIGN_GATES, "if number != better", "if number < 0", OF_DESIGN_GATES),
    Mutant(
        "gates-count-a-full-score-as-an-edge", DESIGN_GATES, "< NOTHING_TO_GAIN)]", "< 2)]", OF_DESIGN_GATES
    ),
    Mutant("gates-want-few-worlds", DESIGN_GATES, "LEAST_WORLDS = 20", "LEAST_WORLDS = 19", OF_DESIGN_GATES),
    Mutant(
        "gates-spare-without-collapse", DESIGN_GATES, '"acts", count > 0,', '"acts", True,', OF_DESIGN_GATES
    ),
    Mutant(
        "gates-ask-the-method-itself", DESIGN_GATES, "replace(check, first=where)", "check", OF_DESIGN_GATES
    ),
    Mutant(
        "gates-call-old-data-new",
        DESIGN_GATES,
        "if share <= ON_BASE_DATA:",
        "if share >= 0:",
        OF_DESIGN_GATES,
    ),
    Mutant(
        "fresh-seeds-are-the-first-run",
        "analysis/judging/claims.py",
        '>= entry.promises["fresh"]',
        '< entry.promises["fresh"]',
        "tests/experiments/test_experiments.py -k fresh_seeds",
    ),
    Mutant(
        "statements-below-are-above",
        SENTENCES,
        'self._by("below" if below else "above", outcome, a, b,',
        'self._by("above", outcome, a, b,',
        OF_SENTENCES,
    ),
    Mutant("factors-are-not-logarithms", SENTENCES, "math.log(times)", "times", OF_SENTENCES),
    Mutant(
        "trained-tables-compare-means",
        "analysis/experiment.py",
        '"mean" if self.compute else "median"',
        '"mean"',
        OF_SENTENCES,
    ),
    Mutant(
        "equality-forgets-the-floor",
        COMPARISON,
        "return within(groups, self.margin, note, measure, self._floored(table, value))",
        "return within(groups, self.margin, note, measure)",
        OF_SENTENCES,
    ),
    Mutant(
        "levels-are-read-from-zero",
        COMPARISON,
        "null = self.margin if self.second is None and not self.x else 0.0",
        "null = 0.0",
        OF_SENTENCES,
    ),
    Mutant(
        "shared-columns-are-forgotten",
        COMPARISON,
        "log=self.log, **self.over)",
        "log=self.log)",
        OF_SENTENCES,
    ),
    Mutant(
        "bets-without-the-width-of-the-mixture",
        BETS,
        "tail - math.log1p(-chance)\n    return",
        "tail\n    return",
        OF_BETS,
    ),
    Mutant(
        "bets-on-every-chance",
        BETS,
        "special.betaincc(won + 1, lost + 1, chance)",
        "special.betaincc(won + 1, lost + 1, 0.0)",
        OF_BETS,
    ),
    Mutant(
        "bets-below-are-those-above",
        BETS,
        "_more(lost, won, 1 - chance)",
        "_more(won, lost, chance)",
        OF_BETS,
    ),
    Mutant(
        "bets-count-ties-as-wins", BETS, "(x_N > t).sum()", "(x_N >= t).sum()", OF_EVIDENCE + " " + OF_BETS
    ),
    Mutant(
        "bets-on-the-mean-of-both-sides",
        BETS,
        "special.log_ndtr(slope_K / math.sqrt(precision))",
        "0.0",
        OF_BETS,
    ),
    Mutant(
        "bets-on-the-mean-without-prior", BETS, "precision = n + EFFECT_SIZE**-2", "precision = n", OF_BETS
    ),
    Mutant("bets-on-the-mean-of-n-degrees", BETS, "(n - 1) * np.log(s_K)", "n * np.log(s_K)", OF_BETS),
    Mutant(
        "bets-take-one-unit-for-certain",
        BETS,
        "if x_N.size < 2:\n        return 1.0, 1.0",
        "if x_N.size < 1:\n        return 1.0, 1.0",
        OF_BETS,
    ),
    Mutant(
        "bets-sequence-at-one-side",
        BETS,
        "value_C[up_C >= 2 / level]",
        "value_C[up_C >= 0.2 / level]",
        OF_BETS,
    ),
    Mutant(
        "evidence-in-some-cell-is-enough",
        EVIDENCE,
        "SUPPORTED: _every(above",
        "SUPPORTED: _some(above",
        OF_EVIDENCE,
    ),
    Mutant("evidence-refuted-by-the-margin", EVIDENCE, "at[min(margin, null)]", "at[margin]", OF_EVIDENCE),
    Mutant(
        "evidence-smaller-without-a-direction",
        EVIDENCE,
        "min(_every(a for a, _ in at[null]), _some(b for _, b in at[margin]))",
        "_some(b for _, b in at[margin])",
        OF_EVIDENCE,
    ),
    Mutant(
        "evidence-no-difference-on-one-side",
        EVIDENCE,
        "min(_every(a for a, _ in at[-margin]), _every(b for _, b in at[margin]))",
        "_every(b for _, b in at[margin])",
        OF_EVIDENCE,
    ),
    Mutant(
        "evidence-equal-by-one-side",
        EVIDENCE,
        "inside = min(_every(above for above, _ in low), _every(below for _, below in high))",
        "inside = _every(below for _, below in high)",
        OF_EVIDENCE,
    ),
    Mutant("evidence-floor-forgotten", EVIDENCE, "inside = min(inside, 1.0)", "pass", OF_EVIDENCE),
    Mutant(
        "evidence-of-the-best-cell",
        EVIDENCE,
        "min(range(len(found)), key=lambda index: found[index].effect)",
        "max(range(len(found)), key=lambda index: found[index].effect)",
        OF_EVIDENCE,
    ),
    Mutant(
        "evidence-below-not-turned",
        EVIDENCE,
        "found = exceeds(turned, -margin, note, measure, -null)",
        "found = exceeds(turned, margin, note, measure, -null)",
        OF_EVIDENCE,
    ),
    Mutant(
        "evidence-an-empty-cell-agrees",
        EVIDENCE,
        "x_N.size == 0 or np.isnan(x_N).any()",
        "np.isnan(x_N).any()",
        OF_EVIDENCE,
    ),
    Mutant("rule-half-the-threshold", RULE, "2 * m / (alpha * step)", "m / (alpha * step)", OF_RULE),
    Mutant(
        "rule-one-run-decides",
        RULE,
        "fresh = evidence.runs[1].e if evidence.runs else {}",
        "fresh = evidence.runs[1].e if evidence.runs else evidence.e",
        OF_RULE,
    ),
    Mutant("rule-fresh-seeds-may-oppose", RULE, "fresh.get(word, 0.0) > 1", "word in fresh", OF_RULE),
    Mutant("rule-fresh-run-is-the-first", RULE, "evidence.runs[1].e", "evidence.runs[0].e", OF_RULE),
    Mutant(
        "claims-two-runs-are-the-first",
        CLAIMS,
        "replace(entry.function(_both(frame)), runs=runs)",
        "replace(runs[0], runs=runs)",
        OF_RULE,
    ),
    Mutant("verdicts-of-invalid-claims", VERDICTS, 'if row["gates"]:', "if False:", OF_VERDICTS),
    Mutant(
        "verdicts-count-invalid-claims",
        VERDICTS,
        'if not row["gates"] and row["e"]',
        'if row["e"]',
        "tests/unit/analysis/test_verdicts.py -k invalid_claims_hold_up_nothing",
    ),
    Mutant("verdicts-never-stale", VERDICTS, "same = all(", "same = True or all(", OF_VERDICTS),
    Mutant(
        "digests-of-the-file-alone", DIGESTS, "todo.append(name)", "pass", OF_VERDICTS + " -k code_of_a_claim"
    ),
    Mutant(
        "gates-hear-no-objection",
        GATES,
        "if entry.name in objections():",
        "if False:",
        OF_DESIGN_GATES,
    ),
    Mutant(
        "systems-decided-by-one-of-two",
        SYSTEMS,
        "if any(word in (UNDECIDED, NO_TABLE)",
        "if all(word in (UNDECIDED, NO_TABLE)",
        OF_SYSTEMS,
    ),
    Mutant(
        "systems-invalid-counts",
        SYSTEMS,
        "if any(word.startswith(INVALID)",
        "if all(word.startswith(INVALID)",
        OF_SYSTEMS,
    ),
    Mutant("power-without-fresh-seeds", POWER, " and _above(k2, n2) > 1", "", OF_POWER),
    Mutant(
        "power-of-the-second-run-alone",
        POWER,
        "_above(k + k2, n + n2) >= least",
        "_above(k2, n2) >= least",
        OF_POWER,
    ),
)
