"""BibTeX of sources: what they name, each work once, in braces that close."""

import re

from support.command_line import call

from analysis.judging.system_list import short_names, source, systems
from testbed.inspection.bibtex import bibtex
from testbed.objectives import objective


def fields(entry: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.M))


def test_a_paper_has_authors_year_and_eprint():
    (entry,) = bibtex(["Ye & Liu (2020), arXiv:1912.09729, Eq. 5"]).split("\n\n")
    assert entry.startswith("@misc{arxiv-1912.09729,")
    assert fields(entry) == {
        "author": "Ye and Liu", "year": "2020", "eprint": "1912.09729", "archiveprefix": "arXiv",
        "url": "https://arxiv.org/abs/1912.09729", "note": "Eq. 5",
    }  # fmt: skip


def test_a_repository_has_version_date_and_file():
    found = fields(bibtex(["verl-project/verl 1dda039b 2026-08-22, core_algos.py (dppo_tv)"]))
    assert found == {
        "title": "verl-project/verl", "version": "1dda039b", "date": "2026-08-22",
        "url": "https://github.com/verl-project/verl", "note": r"core\_algos.py (dppo\_tv)",
    }  # fmt: skip


def test_works_of_several_sources_are_printed_once_and_others_keep_their_words():
    text = bibtex(["Xi et al. (2025), arXiv:2510.18927; a talk", "Xi et al. (2025), arXiv:2510.18927, Eq. 8"])
    assert [line for line in text.splitlines() if line.startswith("@")] == [
        "@misc{arxiv-2510.18927,",
        "@misc{a-talk,",
    ]
    assert "author = {Xi and others}" in text


def test_every_objective_can_be_cited():
    for name in objective:
        text = bibtex([objective[name].source])
        keys = re.findall(r"^@(?:misc|software)\{([a-z0-9.-]+),$", text, re.M)
        assert keys, name
        assert len(keys) == len(set(keys))
        assert text.count("{") == text.count("}"), name


def test_a_system_is_cited_by_the_works_that_its_claims_cite(capsys):
    assert source("BAPO") == ""  # its objective names the paper
    assert source("LlamaRL") == "LlamaRL (2025), arXiv:2505.24034"  # once, without the words of each claim
    found = {name: source(name) or objective_of(name) for name in systems()}
    assert sum(map(bool, found.values())) >= 109
    for name, text in found.items():
        entries = bibtex([text]) if text else ""
        assert entries.count("{") == entries.count("}"), name
    code, out, _ = call(capsys, "show", "PF-PPO", "M2PO", "--bibtex")
    assert (code, re.findall(r"author = \{(.*)\}", out)) == (0, ["Zheng and others", "Shen and Zhang"])
    code, out, _ = call(capsys, "show", "R²VPO", "--cite")  # by its objective, which has a plain 2
    assert (code, "arXiv:2601.03320" in out) == (0, True)
    code, _, err = call(capsys, "show", "ChartSketcher", "--cite")
    assert (code, "'ChartSketcher' is a system, and its source is not recorded" in err) == (2, True)


def objective_of(name: str) -> str:
    return next((objective[each].source for each in short_names(name) if each in objective), "")


def test_the_command_prints_entries(capsys):
    code, out, _ = call(capsys, "show", "m2po", "bapo", "--bibtex")
    assert (code, out.count("@misc{")) == (0, 2)
