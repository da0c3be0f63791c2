"""P21: texts of users are drawn, printed and written as they are: no formula, no markup, no escape."""

import random
from pathlib import Path

import pytest
from support.made_sweep import TOY, made

from testbed.cli import main
from testbed.config.run import grid

PIECES = (
    r"$\boxed{}$", "$x_{", r"\$5", r"\frac{1", "$$", "_$ $^", "%", "#", "~", "<script>alert(1)</script>",
    "&amp;", "</svg>", "]]>", "{0}", "\x1b[2J", "\x1b]0;t\x07", "\u202e", "\u2028", "\x85", "\0", "\n", "\t",
    "é", "数学", "🙂", "=", ",", ";", "'", '"', "a" * 3000, " ",
)  # fmt: skip
COMMANDS = (
    "plot {} --kind curves --out c.svg", "plot {} --kind final --x task_args.system --out f.png",
    "plot {} --kind heat --out h.pdf", "report {} --html r.html", "status {} --arms", "compare {}",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
def test_any_text_in_a_system_prompt_goes_through_every_reader(tmp_path, monkeypatch, campaign, capsys):
    monkeypatch.chdir(tmp_path)
    trials = campaign.trials(short=1, full=60)
    dice = random.Random(21)
    campaign.tried(f"sweeps with hostile system prompts, through {len(COMMANDS)} commands", trials)
    for trial in range(trials):
        texts = ["".join(dice.choices(PIECES, k=dice.randint(1, 6))) for _ in range(2)]
        cells = grid(TOY, task_args=[(("system", f"{n} {t}"),) for n, t in enumerate(texts)], lag=[0, 8])
        folder = made(Path(str(trial)), [cell for cell in cells for cell in grid(cell, seed=[0, 1])])
        for command in COMMANDS:
            with pytest.raises(SystemExit) as end:
                main(command.format(folder).split())
            said = "".join(capsys.readouterr())
            assert end.value.code == 0, (command, texts, said)
            assert not {"\x1b", "\0", "\u202e", "Traceback"} & {*said, *said.split()}, (command, texts)
        assert "<script>alert(1)" not in Path("r.html").read_text()
