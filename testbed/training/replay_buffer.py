"""Mix other groups into a batch: replayed from earlier batches, or written by the teacher."""

from collections import deque
from collections.abc import Sequence

from testbed import rng
from testbed.data.batch import REPLAY
from testbed.data.rollout import Rollout
from testbed.data.select import groups_in, replace_groups, stack
from testbed.errors import UserError
from testbed.recipes.composition import Replay


class ReplayBuffer:
    """The last `window` batches of an arm. Ages of replayed groups depend on (seed, step) alone."""

    def __init__(self, replay: Replay, seeds: Sequence[int]) -> None:
        if replay.window < 1 or not 0 < replay.share < 1:
            raise UserError(
                f"replay of window {replay.window} and share {replay.share}: expected a window of at least "
                "1 and a share between 0 and 1."
            )
        self.share, self.seeds = replay.share, seeds
        self.kept: deque[Rollout] = deque(maxlen=replay.window)

    def mix(self, fresh: Rollout, step: int) -> Rollout:
        """Replace the batch's last groups by an earlier batch's; store the fresh batch."""
        prompts = fresh.prompt_RNQ.shape[1]
        count = groups_in(self.share, prompts)
        if not count:
            raise UserError(
                f"a replayed share {self.share:g} of {prompts} prompts is less than one group, so that "
                "nothing would be replayed; raise `prompts` or the share."
            )
        mixed = fresh
        if self.kept:
            drawn = [int(rng.generator(s, "replay", step).integers(len(self.kept))) for s in self.seeds]
            chosen = [self.kept[index].rows(slice(r, r + 1)) for r, index in enumerate(drawn)]
            mixed = replace_groups(fresh, stack(chosen), count, REPLAY)
        self.kept.append(fresh)
        return mixed
