"""Objectives on the command line: what a reader gets to see, and what a mistake gets told."""

import json
import math

import pandas as pd
import pytest
from support.command_line import call as run_command
from support.command_line import refused, told

from testbed.inspection.explain import difference, facts, in_words, settings
from testbed.objectives import objective
from testbed.registry import Entry

OWN = '''
"""Mine."""


def halved(logp_BT, batch, *, share=0.5):
    """L = -share A log pi.

    For a test.
    """
    return -share * batch.adv_BT * logp_BT


def one_number(logp_BT, batch):
    return (batch.adv_BT * logp_BT).sum()


def broken(logp_BT, batch):
    return {}["missing"]


def alone(logp_BT):
    return logp_BT


def undecided(logp_BT, batch, *, share):
    """L = ?"""
    return share * logp_BT
'''


def call(capsys, *words):
    return run_command(capsys, *["objectives"] * (words[0] == "compare"), *words)


def fetched(capsys, *words):
    code, out, err = call(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    return file


def test_the_list_has_every_objective_and_can_be_narrowed_to_a_family(capsys):
    rows = fetched(capsys, "list", "objectives")
    assert [row["name"] for row in rows] == sorted(objective)
    clipped = fetched(capsys, "list", "objectives", "family=clipped")
    assert clipped == [row for row in rows if row["family"] == "clipped"]
    assert 0 < len(clipped) < len(rows)
    _, out, _ = call(capsys, "list", "objectives", "family=clipped")
    assert "ppo_clip" in out
    assert "cispo" not in out


def test_show_prints_the_whole_docstring_settings_promises_and_variants(capsys):
    _, out, _ = call(capsys, "show", "ppo_clip", "--kind", "objective")
    assert "L = -min(u A, clip(u, 1 - eps_low, 1 + eps_high) A)" in out
    assert "arXiv:1707.06347" in out
    assert "eps_low=0.2, eps_high=0.2" in out
    assert "On-policy every token has weight A." in out
    assert "Beside pi it reads anchor log-probabilities, advantages." in out
    for variant in objective.variants("ppo_clip"):
        assert f"  {variant}  {objective[variant].formula}" in out
        assert difference(objective[variant]) in out
    assert "paper has the trainer's" in difference(objective["ppo_clip@pipelinerl"])


def test_show_of_a_variant_names_its_base(capsys):
    _, out, _ = call(capsys, "show", "ppo_clip@pipelinerl", "--kind", "objective")
    assert f"Variant of: ppo_clip, {objective['ppo_clip'].formula}" in out
    assert "Variants:" not in out


@pytest.mark.slow
def test_everything_can_be_shown_as_json_without_addresses_in_memory(capsys):
    for name, kinds in fetched(capsys, "show", *objective, "--kind", "objective").items():
        found = kinds["objective"]
        assert "0x" not in json.dumps(found)
        assert [each["name"] for each in found["variants"]] == objective.variants(name)
        assert all(each["difference"] for each in found["variants"])
    assert fetched(capsys, "show", "m2po")["objective"]["promises"]["keep"] == "trust_region_keep"


def test_a_variant_says_in_a_sentence_how_it_differs():
    for name in objective:
        if "@" in name:
            said = difference(objective[name])
            assert len(said.split()) >= 5, name
            assert said.endswith((".", ":")), name


def test_promises_in_words():
    assert in_words(objective["m2po"]) == [
        "Its importance ratio is the token's.",
        "Beside pi it reads behavior log-probabilities (mu), advantages.",
        "A token's weight depends on the whole batch: micro-batches must share its statistic.",
        "On-policy every token has weight A.", "It promises no bound on |w/A|.",
        "Its weight never has the sign opposite to the advantage's.", "It drops tokens: their weight is 0.",
    ]  # fmt: skip
    assert "On-policy every token has weight 0.2651 A." in in_words(objective["mhpo"])
    words = in_words(objective["cispo"])
    assert "|w/A| is at most 1+eps_high." in words
    assert "The weight is a constant for autograd." in words
    assert "On-policy every token of a sequence of T tokens has weight A/T." in in_words(objective["gspo"])
    words = in_words(objective["chord"])
    assert "Its weight may push against the advantage." in words
    assert "Its gradient does not vanish where the advantage is 0." in words


def test_differences_skip_definitions_and_do_not_stop_at_equation_numbers():
    def variant(logp_BT, batch, *, cap=math.inf):
        """L = x.

        d = anchor/mu. Unlike Eq. A of the paper it drops tokens. More follows.

        And more.
        """

    entry = Entry("x@y", variant, "nobody")
    assert difference(entry) == "Unlike Eq. A of the paper it drops tokens."
    assert settings(entry) == "cap=inf"
    assert facts(entry)["formula"] == "L = x."


def test_cite_prints_one_source_or_a_table_of_several(capsys):
    assert call(capsys, "show", "m2po", "--cite")[1] == "Zheng et al. (2025), arXiv:2510.01161, Algorithm 1\n"
    _, out, _ = call(capsys, "show", "m2po", "cispo", "--cite")
    assert "2510.01161" in out
    assert "2506.13585" in out
    assert fetched(capsys, "show", "m2po", "cispo", "--cite") == {
        name: objective[name].source for name in ("m2po", "cispo")
    }


def test_compare_expands_a_name_to_its_variants_once(capsys):
    names = [row["name"] for row in fetched(capsys, "compare", "ppo_clip", "cispo", "ppo_clip@pipelinerl")]
    wanted = ["ppo_clip", *objective.variants("ppo_clip"), "cispo", *objective.variants("cispo")]
    assert names == wanted
    alone = fetched(capsys, "compare", "ppo_clip@pipelinerl")
    assert [row["name"] for row in alone] == ["ppo_clip@pipelinerl"]


def test_compare_tabulates_weights_over_the_advantage(capsys):
    row = fetched(capsys, "compare", "ppo_clip")[0]
    at = dict(zip(row["log_ratios"], zip(*row["weights"].values(), strict=True), strict=True))
    assert row["axis"] == "pi/anchor"
    assert at[0.0] == (1, 1)
    assert at[0.5] == (0, pytest.approx(math.exp(0.5)))
    assert at[-0.5] == (pytest.approx(math.exp(-0.5)), 0)
    assert row["example"]["positive"] == pytest.approx([0, 0.5])
    assert row["example"]["negative"] == pytest.approx([0, 1.25, 4])
    _, out, _ = call(capsys, "compare", "ppo_clip", "m2po")
    assert "Effective weight w/A by log-ratio, A < 0" in out
    assert "1.649" in out
    assert "-0 " not in out
    assert "▁" in out
    assert "--figure" in out


def test_a_loss_without_advantages_is_compared_by_its_weight(capsys):
    names = [n for n in objective if not {"adv", "reward"} & set(objective[n].promises["reads"])]
    for name in names[:3]:
        row = next(r for r in fetched(capsys, "compare", name) if r["name"] == name)
        assert not row["divided_by_advantage"]
        assert row["weights"]["positive"] == row["weights"]["negative"]


def test_a_decoupled_loss_is_compared_along_the_mismatch_of_the_engines(capsys):
    row = next(r for r in fetched(capsys, "compare", "tis") if r["name"] == "tis")
    assert row["axis"] == "anchor/mu"
    assert row["weights"]["positive"][-1] == 2.0


@pytest.mark.slow
def test_compare_draws_all_curves_into_one_file(capsys, tmp_path):
    path = tmp_path / "new" / "weights.pdf"
    out = told(capsys, "objectives", "compare", "ppo_clip", "dual_clip", "--figure", path)
    assert f"Figure: {path}" in out
    assert path.read_bytes().startswith(b"%PDF")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_the_figure_has_a_panel_per_name_with_both_signs_and_the_on_policy_dots():
    from analysis.experiments.cards.objective_weights import frame_of
    from paper_figs.objective_comparison import draw
    from testbed.inspection.atlas import atlas

    fig = draw(frame_of(atlas(["dual_clip", "ppo_clip"])))
    assert [ax.get_title() for ax in fig.axes] == ["dual_clip", "ppo_clip"]
    assert [text.get_text() for text in fig.legends[0].get_texts()][:2] == ["A = +1", "A = −1"]
    for ax in fig.axes:
        dots = [line for line in ax.lines if line.get_marker() == "o"]
        assert sorted(d.get_ydata()[0] for d in dots) == [-1, 1]
    assert "↓ −20.1" in fig.axes[1].texts[0].get_text()


def test_equal_curves_are_drawn_once_under_all_their_names():
    from analysis.experiments.cards.objective_weights import frame_of
    from paper_figs.objective_comparison import draw
    from testbed.inspection.atlas import atlas

    frame = frame_of(atlas(["ppo_clip", "reinforce"]))
    copies = [frame[frame["objective"] == "ppo_clip"].assign(objective=f"ppo_clip@{n}") for n in "ab"]
    fig = draw(pd.concat([frame, *copies]))
    assert [ax.get_title() for ax in fig.axes] == ["ppo_clip, @a, @b", "reinforce"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["show", "m2p"], "Did you mean 'm2po'"),
     (["show", "ppo_clip@pipelinrl"], "Did you mean 'ppo_clip@pipelinerl'"),
     (["show", "m2po", "cisp", "--cite"], "Did you mean 'cispo'"),
     (["compare", "ppo_clip", "gsp"], "Did you mean 'gspo'"),
     (["list", "objectives", "family=cliped"], "Did you mean 'clipped'"),
     (["compare", "ppo_clip", "--figure", "weights.gif"], "ends in .png or .pdf"),
     (["objectives", "compare"], "Missing argument"),
     (["objectives", "shw", "m2po"], "No such command 'shw'")],
)  # fmt: skip
def test_a_mistake_gets_one_message_and_writes_nothing(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, *["objectives"] * (words[0] == "compare"), *words)
    assert err.count("error:") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_cannot_be_written_is_one_message(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(
        capsys, "objectives", "compare", "ppo_clip", "--figure", tmp_path / "file" / "a.png"
    )


def test_a_function_in_a_file_is_shown_and_compared(capsys, own):
    name = f"{own}:halved"
    _, out, _ = call(capsys, "show", name, "--kind", "objective")
    assert "L = -share A log pi." in out
    assert "share=0.5" in out
    assert "It promises nothing" in out
    rows = fetched(capsys, "compare", "reinforce", name)
    mine = next(row for row in rows if row["name"] == name)
    assert set(mine["weights"]["positive"]) == set(mine["weights"]["negative"]) == {0.5}
    assert call(capsys, "compare", name)[0] == 0
    assert "sha256" in call(capsys, "show", name, "--cite")[1]


@pytest.mark.parametrize("command", ["show", "compare"])
@pytest.mark.parametrize(
    ("name", "message"),
    [("mine.py:halve", "has no function 'halve'. Did you mean 'halved'"),
     ("mine.py:alone", "positional parameters logp_BT; expected (logp_BT, batch"),
     ("mine.py:halved#000000000000", "the file has changed"),
     ("missing.py:halved", "missing.py cannot be read"),
     ("raises.py:halved", "raises.py cannot be run: ZeroDivisionError"),
     ("leaves.py:halved", "leaves.py cannot be run: SystemExit: 0"),
     ("syntax.py:halved", "syntax.py cannot be run: SyntaxError"), (".py:halved", "cannot be read")],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_one_message(capsys, own, monkeypatch, command, name, message):
    monkeypatch.chdir(own.parent)
    (own.parent / "raises.py").write_text("1 / 0\n")
    (own.parent / "leaves.py").write_text("raise SystemExit(0)\n")
    (own.parent / "syntax.py").write_text("def halved(:\n")
    before = sorted(own.parent.iterdir())
    err = refused(capsys, *["objectives"] * (command == "compare"), command, name)
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path for path in own.parent.iterdir() if path.name != "__pycache__") == before


@pytest.mark.parametrize(
    ("function", "message"),
    [("broken", "in broken: KeyError: 'missing'"),
     ("one_number", "mine.py:one_number, line 13 returns shape (); expected a loss per token"),
     ("undecided", "missing 1 required keyword-only argument: 'share'")],
)  # fmt: skip
def test_a_function_that_fails_when_called_is_one_message(capsys, own, function, message):
    assert call(capsys, "show", f"{own}:{function}")[0] == 0
    assert message in refused(capsys, "objectives", "compare", f"{own}:{function}")


def test_the_digest_of_an_unchanged_file_is_accepted(capsys, own):
    from testbed.user_files import pin

    pinned = pin(f"{own}:halved")
    assert call(capsys, "show", pinned, "--kind", "objective")[0] == 0
    own.write_text(OWN.replace("share=0.5", "share=0.25"))
    assert "the file has changed" in call(capsys, "show", pinned, "--kind", "objective")[2]
    assert "share=0.25" in call(capsys, "show", f"{own}:halved", "--kind", "objective")[1]


@pytest.mark.slow
def test_the_atlas_command_writes_the_same_files_twice_and_keeps_other_tables(capsys, tmp_path, monkeypatch):
    from analysis.tables import committed as load
    from testbed.inspection import atlas

    some = ("ppo_clip", "reinforce", "dual_clip")
    whole = atlas.atlas
    monkeypatch.setattr(atlas, "atlas", lambda: whole(some))
    (tmp_path / "data").mkdir()
    for committed in load.COMMITTED.glob("*.*"):
        (tmp_path / "data" / committed.name).write_bytes(committed.read_bytes())
    # A table of objectives that was edited by hand is no obstacle to making it again.
    (tmp_path / "data" / "objective-weights.csv").write_text("family,objective\n")
    words = ["evidence", "pages", "atlas", "--data", str(tmp_path / "data"), "--docs", str(tmp_path / "docs")]
    out = told(capsys, *words)
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path.name for path in (tmp_path / "docs").iterdir()} == {
        "objectives.md", "objectives-clipped.png", "objectives-reinforce.png", "stacks",
    }  # fmt: skip
    tables = load.load_committed(folder=tmp_path / "data")
    assert set(tables) == {path.stem for path in load.COMMITTED.glob("*.csv")}
    assert tables["staleness"].csv == (load.COMMITTED / "staleness.csv").read_bytes()
    assert tables["objective-weights"].about["objectives"] == 3
    picture = (tmp_path / "docs" / "objectives-clipped.png").read_bytes()
    assert tables["objective-weights"].sha256.encode() in picture
    assert call(capsys, *words)[0] == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == written
    assert str(tmp_path / "docs" / "objectives.md") in out.split()
