"""Bugs planted in the plan of the house and in the documentation site."""

from mutants.mutant import Mutant

DOCSTRINGS, PLAN = "tests/docs/test_plain_docstrings.py", "tests/test_architecture.py"
PLAIN = "docs/tools/plain_docstrings.py"

MUTANTS = (
    Mutant("house-a-room-imports-upward", "testbed/losses/clipping.py", "import math\n", "import math\nimport testbed.objectives\n", PLAN),
    Mutant("house-an-upward-import-hides-in-a-function", "testbed/data/groups.py", '    """The groups side by side', '    def door(self) -> None:\n        import testbed.losses.subsets\n    """The groups side by side', PLAN),
    Mutant("house-two-modules-import-each-other", "testbed/data/batch.py", "def check_finite(", "def door() -> None:\n    import testbed.data.select\n\n\ndef check_finite(", PLAN),
    Mutant("site-formulas-become-emphasis", PLAIN, r"\\*_\[", r"\\_\[", DOCSTRINGS),
    Mutant("site-inequalities-become-tags", PLAIN, '.replace("<", "&lt;")', "", DOCSTRINGS),
    Mutant("site-code-is-escaped-too", PLAIN, 'part if part.startswith("`") else _escaped(part)', "_escaped(part)", DOCSTRINGS),
    Mutant("site-the-first-line-becomes-a-list", PLAIN, "elif number and (field", "elif (field", DOCSTRINGS),
    Mutant("site-sessions-run-together", PLAIN, "_as_code, text)", "r'\\g<0>', text)", DOCSTRINGS),
    Mutant("site-a-planned-guide-is-not-in-the-table", "docs/howto/index.md", "(resume.md)", "(demo.md)", "tests/docs/test_pages.py"),
    Mutant("site-a-letter-means-two-things", "docs/glossary.md", "| `K` | entry", "| `A` | entry", "tests/docs/test_pages.py"),
    Mutant("site-a-letter-leaves-the-table", "docs/glossary.md", "| `Y` | slice", "| `O` | slice", "tests/docs/test_axes.py"),
    Mutant("site-a-letter-of-its-own", "testbed/advantages/history.py", "median_1 = history_K", "median_O = history_K", "tests/docs/test_axes.py"),
    Mutant("site-a-letter-shown-by-a-name-of-old", "docs/glossary.md", "`prompt_RNQ`", "`prompt_RNK`", "tests/docs/test_axes.py"),
    Mutant("site-an-output-is-out-of-date", "docs/howto/value-estimate.md", "0.3333", "0.3334", "tests/docs/test_commands.py -k value-estimate"),
    Mutant("site-a-reason-is-missing", "docs/howto/atlas.md", "not run: draws the committed page and all its pictures again, in place", "not run: slow", "tests/docs/test_commands.py -m 'not slow'"),
)  # fmt: skip
