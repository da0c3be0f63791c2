"""Bugs planted in the atlas of objectives and in what `testbed objectives` prints."""

from mutants.mutant import Mutant

ATLAS = "tests/unit/inspection/test_atlas.py"
CLI = "tests/unit/cli/test_cli_objectives.py"

MUTANTS = (
    Mutant("atlas-probe-moves-all", "testbed/inspection/atlas.py", "moved[:, :, 0, 0] += torch.as_tensor(log_ratio_X)", "moved += torch.as_tensor(log_ratio_X)[:, None, None]", ATLAS),
    Mutant("atlas-signs-swapped", "testbed/inspection/atlas.py", "ADVANTAGES = (1.0, -1.0)", "ADVANTAGES = (-1.0, 1.0)", ATLAS),
    Mutant("atlas-group-one-sided", "testbed/inspection/atlas.py", "torch.tensor([1.0, 1.0, -1.0, -1.0]", "torch.tensor([1.0, 1.0, 1.0, 1.0]", ATLAS),
    Mutant("atlas-anchor-stays", "testbed/inspection/atlas.py", 'axis in ("anchor/mu", "mu/ref") else start', 'axis == "mu/ref" else start', ATLAS),
    Mutant("atlas-ref-moves-along", "testbed/inspection/atlas.py", 'moved if axis == "anchor/mu" else start', "moved", ATLAS),
    Mutant("atlas-origin-lost", "testbed/inspection/atlas.py", "_ORIGIN.get(axis, ROLLOUT)", "ROLLOUT", ATLAS),
    Mutant("atlas-axis-of-the-anchor", "testbed/inspection/atlas.py", '("mu", "anchor", "ref") if base', '("ref", "anchor", "mu") if base', ATLAS),
    Mutant("atlas-edges-coarse", "testbed/inspection/atlas.py", "SPLITS, PASSES = 16, 3", "SPLITS, PASSES = 16, 1", ATLAS),
    Mutant("atlas-points-missing", "testbed/inspection/atlas.py", "TOLERANCE = 0.004", "TOLERANCE = 0.1", ATLAS),
    Mutant("atlas-on-policy-point-missing", "testbed/inspection/atlas.py", "{0, int(np.argmin(np.abs(x))), len(x) - 1}", "{0, len(x) - 1}", ATLAS),
    Mutant("atlas-on-policy-mark-elsewhere", "analysis/experiments/cards/objective_weights.py", "int(x == 0)", "int(x == 3)", ATLAS),
    Mutant("atlas-stale-default", "testbed/objectives/reinforce/cispo.py", "eps_high: float = 0.28", "eps_high: float = 0.2", f"{ATLAS} -k table"),
    Mutant("atlas-page-without-variants", "testbed/inspection/atlas_page.py", "    if variants:\n", "    if False:\n", ATLAS),
    Mutant("atlas-page-bars", "testbed/inspection/atlas_page.py", '.replace("|", "\\\\|")', "", ATLAS),
    Mutant("atlas-panel-too-high", "paper_figs/objective_weights.py", "LIMIT = 3.0", "LIMIT = 300.0", ATLAS),
    Mutant("atlas-panel-ghost-everywhere", "paper_figs/objective_weights.py", "    if base is not None:\n", "    if False:\n", ATLAS),
    Mutant("atlas-titles-overlap", "paper_figs/objective_weights.py", "TITLE = 17", "TITLE = 99", ATLAS),
    Mutant("atlas-picture-of-another-table", "paper_figs/atlas_files.py", 'description = f"{NAME} {table.sha256}"', 'description = NAME', CLI + " " + ATLAS),
    Mutant("atlas-forgets-other-tables", "analysis/tables/making.py", "write_tables({**kept, **made}, data)", "write_tables(made, data)", CLI),
    Mutant("atlas-example-padding", "testbed/inspection/atlas.py", "return first[:2], second", "return first, second", CLI),
    Mutant("atlas-compare-without-variants", "testbed/cli/objectives.py", "(objective[name].name, *objective.variants(name))", "(objective[name].name,)", CLI),
    Mutant("atlas-compare-sign", "testbed/cli/objective_table.py", "sign = -1.0 if reads_signal(entry) else 1.0", "sign = 1.0", CLI),
    Mutant("atlas-compare-mismatch-axis", "testbed/cli/objective_table.py", '"anchor/mu" if "anchor/mu" in axes else axes[0]', "axes[0]", CLI),
    Mutant("atlas-family-unchecked", "testbed/cli/listing.py", "        if not kept:\n", "        if False:\n", CLI),
    Mutant("atlas-own-code-traceback", "testbed/inspection/atlas.py", "    except Exception as error:  # the user's own code", "    except OSError as error:  # the user's own code", CLI),
    Mutant("atlas-own-shape-unchecked", "testbed/inspection/atlas.py", "if shape == logp_BT.shape:", "if True:", CLI),
    Mutant("atlas-digest-unchecked", "testbed/user_files.py", "if digest and digest != now:", "if False:", CLI),
    Mutant("atlas-difference-is-a-definition", "testbed/inspection/explain.py", "if not DEFINITION.match(each)", "if True", CLI),
    Mutant("atlas-figure-any-name", "paper_figs/commands/one_file.py", 'if path.suffix not in (".png", ".pdf"):', "if False:", CLI),
    Mutant("atlas-equal-curves-twice", "paper_figs/objective_comparison.py", ".to_numpy().tobytes(), [])", ".to_numpy().tobytes() + str(name).encode(), [])", CLI),
    Mutant("atlas-own-exit-silent", "testbed/user_files.py", "except BaseException as error:  # a script", "except Exception as error:  # a script", CLI),
)  # fmt: skip
