"""The page of tasks and sources says what its table says."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tool():
    spec = importlib.util.spec_from_file_location("sources_page", ROOT / "docs/tools/sources_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_sources_is_that_of_its_table():
    page = tool()
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


def test_every_source_that_needs_no_file_of_its_own_is_on_the_page():
    from testbed.critics import critic
    from testbed.prefixes import prefix
    from testbed.teachers import teacher
    from testbed.teachers.guides import guide
    from testbed.worlds.verifier_rewards import verifier

    listed = {(row["kind"], row["name"].partition(",")[0]) for row in tool().rows()}
    there = {"prefix": prefix, "guide": guide, "teacher": teacher, "critic": critic, "verifier": verifier}
    plain = {"none", "task", "start"}
    elsewhere = {"file", "values", "table", "exact", "solution"}  # of a file, of trees, of hinted sums
    wanted = {(kind, name) for kind, names in there.items() for name in names} - {
        (kind, name) for kind in there for name in plain | elsewhere
    }
    assert wanted <= listed
