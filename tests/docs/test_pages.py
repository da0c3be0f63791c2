"""What the pages promise: the README is short, the picture is the plan, a letter means one thing."""

import importlib.util
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
from support.doc_blocks import blocks
from support.import_graph import ROOT
from test_architecture import LAYERS

from analysis.arena import table as arena
from analysis.arena.one_setting import losses
from analysis.experiments.real import known_ladder, model_size
from analysis.judging.verdicts import by_claim
from analysis.pages import short_answers
from analysis.pages.finding_facts import Facts
from analysis.pages.findings_page import page
from analysis.tables.committed import load_committed

DOCS = ROOT / "docs"


def load(path):
    """Return a file of Python that is in no package, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_link_works_where_the_repository_is_read():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {Path(name) for name in listed.splitlines()}
    known = files | {parent for name in files for parent in name.parents}
    dead, count = [], 0
    for name in sorted(name for name in files if name.suffix == ".md"):
        text = re.sub(r"(?s)```.*?```|`[^`]*`", "", (ROOT / name).read_text())
        for link in re.findall(r"\]\((?![a-z]+:|#)([^)#\s]+)", text):
            count += 1
            if Path(os.path.normpath(name.parent / link)) not in known:
                dead.append(f"{name} -> {link}")
    assert count > 200
    assert dead == []


def test_the_readme_has_no_relative_link_on_a_package_index(monkeypatch):
    # hatchling builds the package elsewhere; of it only the name of a base class is needed here.
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    interface = types.SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    made = load(ROOT / "hatch_build.py").for_an_index
    text = (ROOT / "README.md").read_text()
    relative = r"\]\((?![a-z]+:|#)"
    assert len(re.findall(relative, text)) > 10
    for source in ("", "https://forge.example/me/testbed"):
        assert not re.search(relative, made(text, source))
        assert ("![" in made(text, source)) == bool(source)
    assert made("![a](docs/a.png)\n\n*Dots.*\n\n[b](c.md) [d](https://e.f)", "") == "b [d](https://e.f)"
    assert made("![a](docs/a.png)", "https://g.h/i/") == "![a](https://g.h/i/raw/main/docs/a.png)"
    assert made("[b](docs/b.md#c)", "https://g.h/i") == "[b](https://g.h/i/blob/main/docs/b.md#c)"


def test_the_readme_has_at_most_ninety_lines():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_what_is_said_under_the_pictures_is_what_their_tables_say():
    text = " ".join((ROOT / "README.md").read_text().split())
    facts = Facts(arena.load(), arena.tuning(), by_claim())
    for said in (
        "No recipe gains .05 over GRPO on all three tasks",
        "PPO-EWMA gains .06, .01 and .10, HölderPO with a fixed",
    ):
        assert said in text
    tasks = ("sorted", "sums", "guess")
    assert {*facts.tasks} - {*tasks} == {"long"}, "thirteen recipes alone ran there"
    for arm in {*facts.best("guess", count=40)} - {"grpo"}:
        gains = [facts.interval(task, arm) for task in tasks]
        assert (arm in ("ppo_ewma", "holder_fixed")) == all(gain > 0 for _, gain, _ in gains), arm
        assert min(low for low, _, _ in gains) < 0, arm
    for arm, ends in (("ppo_ewma", ["0.06", "0.01", "0.10"]), ("holder_fixed", ["0.11", "0.07", "0.00"])):
        assert [f"{facts.interval(task, arm)[1]:.2f}" for task in tasks] == ends
    ends = [facts.final("long", arm, 400)[1:] in text for arm in ("gspo", "topr", "vcpo", "minpro", "grpo")]
    assert ends == [True] * 5
    assert f"({facts.final('long', 'grpo', 0)[1:]} on fresh data)" in text
    assert facts.interval("sorted", "topr", lag=1)[0] > 0
    assert facts.best("sorted")[0] == "topr"
    assert facts.best("sums")[0] == "topr"
    ends = [facts.final(task, arm) for task in ("sorted", "sums") for arm in ("topr", "grpo")]
    assert ends == ["0.86", "0.67", "0.58", "0.31"]
    assert f"{facts.interval('guess', 'topr')[1]:.2f}" == "-0.04"
    ends = arena.load().query("task == 'sums' and lag == 64 and arm in ('topr', 'grpo')")
    failed = (ends["final"] < arena.FAILED).groupby(ends["arm"]).mean()
    assert f"there {failed['topr']:.2f} and {failed['grpo']:.2f} of".replace("0.", ".") in text
    one = losses(arena.load(), ["arm"]).set_index("arm")["one"].round(2)
    assert (one["topr"], one.drop("topr").max()) == (0.66, 0.54)
    for claim in (
        "importance-weights-help-smollm2-at-the-end", "standardized-advantages-help-smollm2-on-the-way",
        "a-clip-helps-smollm2-on-the-way", "q4-0-rollouts-slow-smollm2-down",
        "arena-foretells-the-order-of-recipes-at-tau-0",
        "arena-foretells-the-order-of-recipes-at-tau-0-on-spelling",
    ):  # fmt: skip
        kept = by_claim()[claim]
        said = f"{kept['effect']:.2f} [{kept['low']:.2f}, {kept['high']:.2f}]".replace("0.", ".")
        assert said in text, said
    for claim, said in (
        ("tuned-importance-weights-end-above-grpo-as-foretold", "importance weights and VCPO end .46"),
        ("tuned-vcpo-ends-above-grpo-as-foretold", "importance weights and VCPO end .46"),
        ("tuned-topr-ends-below-grpo-as-foretold", "TOPR .55"),
    ):
        assert said in text
        assert said.endswith(f"{abs(by_claim()[claim]['effect']):.2f}"[1:]), claim
    assert by_claim()["q4-0-rollouts-cost-smollm2-little-with-tis"]["verdict"] == "supported"
    sized = model_size.weighed(load_committed(["model-size"])["model-size"].frame)
    medians = sized.groupby(["weights", "called"])["accuracy"].median().map("{:.2f}".format).str[1:]
    big, bigger = medians[model_size.MIDDLE], medians[model_size.LARGE]
    said = "fresh data: {}, GRPO at its best clip {} (medians of 16 seeds)"
    ends = (f"{big[arm]} and {bigger[arm]}" for arm in ("with importance weights", "GRPO"))
    assert said.format(*ends) in text
    frame = load_committed(["known-ladder"])["known-ladder"].frame
    old = frame[frame["lag"] == known_ladder.OLD]
    for arm, said in ((known_ladder.PLAIN, "lift REINFORCE from"), (known_ladder.WEIGHTED, "to")):
        ends = old[(old[list(arm)] == pd.Series(arm)).all(axis=1)]["accuracy"]
        assert f"{said} {ends.median():.2f}".replace("0.", ".") in text, ends.median()


@pytest.mark.parametrize(
    ("words", "became"),
    [(["supported", "supported"], "hold"), (["supported", "refuted"], "hold in one world or part only"),
     (["no difference"], "vanish"), (["no difference", "refuted"], "reverse in at least one world")],
)  # fmt: skip
def test_a_gain_is_counted_by_all_its_central_claims(words, became):
    assert short_answers._became(words) == became


def test_a_short_answer_names_what_gains_most_where_the_lag_costs_something():
    rows = [("sorted", 0, "grpo", 0.8), ("sorted", 16, "grpo", 0.8), ("sorted", 16, "topr", 0.9)]
    rows += [("sums", 0, "grpo", 0.8), ("sums", 16, "grpo", 0.5)]
    rows += [("sums", 16, name, end) for name, end in (("placebo", 0.8), ("vcpo", 0.7), ("topr", 0.6))]
    seeds = [(*row[:3], seed, row[3]) for row in rows for seed in range(2)]
    frame = pd.DataFrame(seeds, columns=["task", "lag", "arm", "seed", "final"])
    said = short_answers.leaders(Facts(frame, pd.DataFrame(), {}), 16)
    assert said.startswith("Gains most over tuned GRPO: vcpo +0.20 [0.20, 0.20] on sums, of 4 recipes.")


def test_the_findings_are_those_of_the_tables():
    again = "docs/findings.md is of older tables; run: testbed evidence pages findings"
    found = page()
    assert (DOCS / "findings.md").read_text() == found, again
    assert " nan" not in found


def test_the_tutorial_gives_on_policy_medians_with_their_intervals():
    text = " ".join((DOCS / "tutorial.md").read_text().split())
    runs = load_committed(["staleness"])["staleness"].frame
    last = runs[(runs["lag"] == 0) & (runs["step"] == runs["step"].max())]
    found = last.groupby("recipe")["accuracy"]
    low, high, n = found.median().min(), found.median().max(), int(found.count().min())
    assert f"medians of {n} seeds from {low:.2f} to {high:.2f}".replace("0.", ".") in text
    assert "intervals inside .80 to 1.00" in text
    assert found.min().min() >= 0.8


@pytest.mark.slow
def test_the_architecture_picture_is_drawn_from_the_plan_and_the_imports_of_today():
    drawing = load(DOCS / "tools" / "draw_architecture.py")
    again = "docs/architecture.svg is of an older plan; run: python docs/tools/draw_architecture.py"
    assert (DOCS / "architecture.svg").read_text() == drawing.picture(), again


@pytest.mark.parametrize("package", [package for row in LAYERS for package in row])
def test_every_package_has_a_paragraph(package):
    bold = re.findall(r"\*\*\[(.+?)\]", (DOCS / "architecture.md").read_text())
    assert package in {name for names in bold for name in names.split(", ")}


def test_every_guide_is_a_row_of_the_table_and_every_row_a_guide():
    rows = re.findall(r"^\| \[.+?\]\((.+?)\) \|", (DOCS / "howto" / "index.md").read_text(), re.M)
    assert len(rows) == len(set(rows))
    assert {*(row.partition("#")[0] for row in rows), "index.md"} == {
        path.name for path in (DOCS / "howto").glob("*.md")
    }


def test_every_axis_letter_has_one_meaning():
    rows = re.findall(r"^\| ((?:`[A-Z]`(?:, )?)+) \|", (DOCS / "glossary.md").read_text(), re.M)
    letters = re.findall(r"[A-Z]", " ".join(rows))
    assert len(letters) > 20
    assert len(letters) == len(set(letters))


def test_no_example_about_an_oracle_is_without_its_output():
    for path in sorted((DOCS / "exact").glob("*.md")):
        kinds = [block.language for block in blocks(path)]
        assert kinds.count("python") == kinds.count("output") > 0, path


def test_every_page_that_source_names_is_there():
    named = set()
    for package in ("envs", "testbed", "analysis", "paper_figs", "tests"):
        for path in (ROOT / package).rglob("*.py"):
            named |= set(re.findall(r"docs/theory/[a-z-]+\.md", path.read_text()))
    assert len(named) >= 6
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
