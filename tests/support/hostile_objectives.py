"""Objectives in a user's file that are wrong, one way each, and every command that takes an objective."""

HEAD = """import os, sys, torch, warnings
from testbed.errors import UserError


class Gone(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise ValueError


def recurse():
    return recurse()


def again(logp_BT, batch, *, cap: float = 2.0):
    return -logp_BT * batch.adv_BT


"""
RETURNS = (
    "None", "'loss'", "{}", "{'loss': logp_BT}", "[logp_BT]", "(logp_BT, logp_BT)", "3.0", "batch", "again",
    "torch.empty(0)", "logp_BT.sum()", "logp_BT.sum(-1)", "logp_BT.sum(-1, keepdim=True)", "logp_BT.sum(-2)",
    "logp_BT[..., :1]", "logp_BT.transpose(-1, -2)", "logp_BT[..., None]", "logp_BT[None]",
    "logp_BT.detach()", "torch.zeros_like(logp_BT)", "logp_BT.detach().clone().requires_grad_()",
    "logp_BT.detach().numpy()", "logp_BT.long()", "logp_BT > 0", "logp_BT.to(torch.complex64)",
    "logp_BT.to_sparse()", "logp_BT.to('meta')", "logp_BT * float('nan')", "logp_BT * float('inf')",
    "logp_BT / 0", "torch.nn.Parameter(logp_BT.detach())",
)  # fmt: skip
"""What an objective may return in place of a loss per token."""
STATEMENTS = (
    "sys.exit(0)", "sys.exit('done')", "exit()", "raise Gone('away')", "raise Mute", "raise Gone from Mute()",
    "raise KeyError('beta')", "raise StopIteration", "raise GeneratorExit", "raise SystemExit", "recurse()",
    "raise ValueError('x' * 10_000_000)", r"raise ValueError('\x1b[2J\x1b]0;title\x07')",
    r"raise ValueError('\ud800')", "raise MemoryError", "raise Warning", "raise UserError('mine')",
    "assert False", "1 / 0", "logp_BT.nothing", "import nothing_of_this_name", "batch.adv_BT.mul_(2)",
    "batch.reward_B.fill_(-9)", "batch.mask_BT.logical_not_()", "batch.logp_mu_BT.zero_()",
    "batch.group_B.zero_().add_(1)", "object.__setattr__(batch, 'adv_BT', batch.adv_BT * 2)", "yield logp_BT",
    "batch.adv_BT = logp_BT", "logp_BT.data.mul_(2)", "logp_BT.detach().mul_(2)", "logp_BT.mul_(2)",
)  # fmt: skip
"""What it may do before it returns one."""
WHOLE = (
    "async def mine(logp_BT, batch):\n    return -logp_BT", "mine = 3", "mine = None",
    "def mine():\n    return 1", "def mine(logp_BT):\n    return -logp_BT",
    "def mine(logp_BT, batch, cap):\n    return -logp_BT",
    "def mine(logp_BT, batch, *, cap):\n    return -logp_BT", "class mine:\n    pass",
    "def other(a, b):\n    return a", "def mine(:\n    pass", "raise SystemExit(0)", "\0",
)  # fmt: skip
"""Files in which nothing sound has the name."""
OBJECTIVES = (
    *(f"{HEAD}def mine(logp_BT, batch):\n    return {value}\n" for value in RETURNS),
    *(f"{HEAD}def mine(logp_BT, batch):\n    {do}\n    return -logp_BT\n" for do in STATEMENTS),
    *(HEAD + text + "\n" for text in WHOLE),
)
COMMANDS = {
    "exact": ["exact", "own.py:mine", "drift=0.5"],
    "compare": ["objectives", "compare", "own.py:mine", "tis"], "card": ["card", "own.py:mine", "--quick"],
    "diagnose": ["diagnose", "log.jsonl", "--objective", "own.py:mine"],
    "dry run": ["run", "staleness", "recipe=own.py:mine", "lag=0", "seed=0", "--dry-run"],
    "run": ["run", "staleness", "recipe=own.py:mine", "lag=0", "seed=0", "steps=2", "warm_start_steps=0",
            "prompts=2", "group=2", "task_args.digits=3", "--workers", "0", "--yes", "--quiet", "--out",
            "results"], "identify": ["identify", "own.py:mine"],
    "conform": ["conform", "own.py:mine", "--as", "reinforce"],
}  # fmt: skip
