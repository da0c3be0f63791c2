"""Bugs planted in experiments, in their tables and pages, in how claims compare arms, and in shared plots."""

from mutants.mutant import Mutant

EXPERIMENT, TABLES, PAGE = (
    "analysis/experiment.py",
    "analysis/tables/making.py",
    "analysis/pages/experiment_page.py",
)
COMPARE, PLOTS, CLAIMS = (
    "analysis/judging/comparisons.py",
    "paper_figs/shared_plots.py",
    "analysis/judging/claims.py",
)
TESTS = "tests/experiments/test_experiments.py -k "
PAIRS, DRAWN = (
    "tests/unit/analysis/test_comparisons.py",
    "tests/experiments/test_shared_plots.py -k 'not captions'",
)

MUTANTS = (
    Mutant("experiment-any-file-name", EXPERIMENT, "or found.name != name", "", TESTS + "file_must_declare"),
    Mutant("experiment-two-sources-of-numbers", EXPERIMENT, "len(sources) > 1", "len(sources) > 2", TESTS + "contradiction"),
    Mutant("experiment-plots-what-is-not-there", EXPERIMENT, "self.figure.columns - {", "set() - {", TESTS + "contradiction"),
    Mutant("experiment-claims-on-tables-are-exact", EXPERIMENT, '"statistical" if on_table else "identity"', '"identity"', TESTS + "kinds_of_claims"),
    Mutant("experiment-claims-share-a-name", EXPERIMENT, 'pick another name": called in self.claims', 'pick another name": False', TESTS + "name_of_its_own"),
    Mutant("experiment-claim-says-another-paragraph", EXPERIMENT, r'partition("\n\n")[0]', r'partition("\n\n")[2]', TESTS + "first_paragraph"),
    Mutant("experiment-table-of-the-first-look", EXPERIMENT, "if self.seeds is None else", "if True else", TESTS + "first_look"),
    Mutant("experiment-runs-what-is-computed", EXPERIMENT, "if each.cells is None:", "if False:", TESTS + "testbed_run_knows"),
    Mutant("experiment-table-of-survivors", TABLES, "if status.done < status.planned:", "if False:", TESTS + "survivors"),
    Mutant("experiment-folders-for-a-computed-table", TABLES, "        if folders:\n", "        if False:\n", TESTS + "mistake"),
    Mutant("experiment-runs-what-it-cannot", "analysis/commands/evidence.py", "if experiment.command and not write:", "if False:", TESTS + "mistake"),
    Mutant("compare-arms-unpaired", COMPARE, "arm(table, value, first) - arm(table, value, second)", "arm(table, value, first) - arm(table, value, second).mean()", PAIRS),
    Mutant("compare-two-rows-of-a-pair", COMPARE, "if found.index.has_duplicates:", "if False:", PAIRS),
    Mutant("compare-group-with-itself", COMPARE, "there = level if other is None else other", "there = level", PAIRS),
    Mutant("compare-events-without-a-pair", COMPARE, '"second": second}).dropna()', '"second": second}).fillna(0)', PAIRS),
    Mutant("plot-curves-of-means", PLOTS, "[i.center for _, i in found]", "[i.high for _, i in found]", DRAWN),
    Mutant("plot-dial-half-an-interval", PLOTS, "[i.high - i.center if i.n > 1", "[0.0 if i.n > 1", DRAWN),
    Mutant("plot-all-rows", PLOTS, "table = table[table[column].isin(_each(wanted))]", "pass", DRAWN),
    Mutant("plot-roc-strictly-above", PLOTS, "score_N >= level_K", "score_N > level_K", DRAWN),
    Mutant("plot-frontier-keeps-the-beaten", PLOTS, "gain_N[n] > gain_N[kept[-1]]", "True", DRAWN),
    Mutant("plot-names-ignored", PLOTS, "plot.names.get(w := _word(part), w)", "_word(part)", DRAWN),
    Mutant("plot-quartiles-are-tenths", PLOTS, "(0.25, 0.5, 0.75)", "(0.1, 0.5, 0.9)", DRAWN),
    Mutant("plot-places-as-words", PLOTS, "places = sorted(table[plot.x].unique(), key=natural)", "places = sorted(table[plot.x].unique(), key=str)", DRAWN),
    Mutant("plot-caption-counts-rows-as-seeds", PLOTS, "len(rows[seed].drop_duplicates())", "len(rows[seed])", DRAWN),
)  # fmt: skip
