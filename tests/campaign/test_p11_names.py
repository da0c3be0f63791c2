"""P11: run names cannot leave the output folder."""

import random

from support.refusals import refuses
from support.small_store import PACKS, content, filled

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.results.manifest import PARTS
from testbed.results.store import Failure, Store, folder_for, status

NAMES = [
    "", ".", "..", "../x", "a/b", "/etc", ".hidden", "a\0b", "a\nb", "-rf", "x" * 101, "é", "a\\..\\b", "~",
    "a b",
]  # fmt: skip
PIECES = ["..", "/", ".", "\\", "\0", "~", "%2e", "a", "é", "\u202e", "\u200b", "\n", "-", " ", ";"]


def test_a_name_cannot_leave_the_output_folder(tmp_path, campaign):
    dice = random.Random(11)
    made = campaign.trials(short=200, full=5000)
    names = NAMES + ["".join(dice.choices(PIECES, k=dice.randint(1, 5))) for _ in range(made)]
    for name in names:
        try:
            folder = folder_for(tmp_path, name)
        except UserError:
            continue
        assert folder.parent == tmp_path
        assert folder.resolve().parent == tmp_path.resolve()
        assert name.isascii()
        assert not name.startswith((".", "-"))
    for name in NAMES:
        refuses("cannot name a results folder", folder_for, tmp_path, name)
    campaign.tried("names of results folders, with ../, /, NUL and other tricks", len(names))


def test_a_link_in_place_of_a_folder_is_refused(tmp_path, campaign):
    assert folder_for(tmp_path, "staleness-2.1_b") == tmp_path / "staleness-2.1_b"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    refuses("symbolic link", folder_for, tmp_path, "link")
    for part in PARTS:
        filled(tmp_path / part, [])
        (tmp_path / part / part).rmdir()
        (tmp_path / part / part).symlink_to(tmp_path / "elsewhere")
        refuses("must be a folder, not a link", Store.start, tmp_path / part, PACKS)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    campaign.tried("symbolic links in place of a results folder and of each folder in it", 1 + len(PARTS))


def test_links_in_place_of_files_are_not_followed(tmp_path, campaign):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    pack = PACKS[0]
    store = filled(tmp_path / "s", PACKS[1:])
    locks = tmp_path / "s" / ".locks"
    locks.mkdir(exist_ok=True)
    (locks / pack.id).symlink_to(precious)
    refuses("Cannot write", store.claim, pack.id)
    for name in (f"failures/{pack.id}.json", f"provenance/{pack.id}.json"):
        (tmp_path / "s" / name).symlink_to(precious)
    assert store.failure(pack.id) is None
    store.fail(Failure(pack.id, "died", "", pack.names))
    assert store.commit(pack.id, content(pack), {})
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "sweep.json").symlink_to(tmp_path / "s" / "sweep.json")
    refuses("cannot be read as the plan", status, tmp_path / "t")
    assert precious.read_text() == "precious"
    campaign.tried("symbolic links in place of a lock, a record, a provenance and a plan", 4)


def test_fields_named_like_paths_do_not_leave_the_folder(tmp_path, campaign):
    names = ["../../../escape", "/etc/x", "..", "a/../../b", "x\0y"]
    for number, name in enumerate(names):
        packs = plan([Run(task=name, recipe=name[::-1])])
        store = Store.start(tmp_path / str(number) / "s", packs)
        store.commit(packs[0].id, content(packs[0]), {})
        store.fail(Failure(packs[0].id, "died", "", packs[0].names))
        assert status(tmp_path / str(number) / "s").done == 1
    found = {path.relative_to(tmp_path).parts[1] for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"s"}
    campaign.tried("tasks and recipes named like paths", len(names))
