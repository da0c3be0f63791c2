"""Fin-ray: a controller learned off-policy in parallel worlds, against the best of a grid of sinusoids."""

import numpy as np

from analysis.lab import Experiment, Floats, Keys, Part, Plot, Rows, ask, combinations, of_keys
from envs.continuous import LQR
from testbed.offline.control import Settings, td3

NAME = "searched-sinusoid"
SEEDS, STEPS, EVERY, PLAYERS, UPDATES = 16, 640, 80, 8, 2.0
TURN, STEP = 0.4, 0.2
"""Rotation of the wake per step, in radians; length of a step, in seconds."""
WAKES = {"wandering": 0.1, "steady": 0.0}
"""Noise of all states. A steady wake turns evenly, so a sinusoid can follow it."""
FREQUENCIES, AMPLITUDES, PHASES = (0.2, 0.3, 0.4, 0.5, 0.6), np.linspace(0, 4, 21), 32
MARGIN, WORST = 0.2, -1.0
"""Margin, a share of the way from no force to the optimal gain, pre-set; least value that counts."""


def turned(angle: float) -> Floats:
    """Rotation matrix of the plane, [2, 2]."""
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def wake(noise: float = 0.1) -> LQR:
    """A damped oscillator (x, v) that should follow c of a turning wake (c, s); noise on all four."""
    moves_DD = np.zeros((4, 4))
    moves_DD[:2, :2], moves_DD[2:, 2:] = [[1.0, STEP], [-STEP, 1 - 0.5 * STEP]], turned(TURN)
    off_D = np.array([1.0, 0.0, -1.0, 0.0])
    return LQR(
        a_DD=moves_DD, b_DU=np.array([[0.0], [STEP], [0.0], [0.0]]), state_cost_DD=np.outer(off_D, off_D),
        action_cost_UU=np.array([[0.05]]), start_DD=np.diag([0.1, 0.1, 1.0, 1.0]), noise_std=noise,
        discount=0.95,
    )  # fmt: skip


def best_sinusoid(world: LQR) -> float:
    """The largest exact value of a sinusoid with a phase relative to the wake's start.

    The sinusoid adds two noiseless states that start at the wake, so the system stays linear.
    """
    amplitude_AP, phase_AP = np.meshgrid(AMPLITUDES, 2 * np.pi * np.arange(PHASES) / PHASES, indexing="ij")
    gain_APUD = np.zeros((*phase_AP.shape, 1, 6))
    gain_APUD[..., 0, 4:] = -amplitude_AP[..., None] * np.stack([np.cos(phase_AP), np.sin(phase_AP)], -1)
    copy_DD = np.vstack([np.eye(4), np.eye(4)[2:]])
    start_DD, found = copy_DD @ world.start_DD @ copy_DD.T, []
    moves_DD, cost_DD = np.zeros((6, 6)), np.pad(world.state_cost_DD, (0, 2))
    moves_DD[:4, :4] = world.a_DD
    for frequency in FREQUENCIES:
        moves_DD[4:, 4:] = turned(frequency)
        blind = LQR(
            a_DD=moves_DD, b_DU=np.pad(world.b_DU, ((0, 2), (0, 0))), state_cost_DD=cost_DD,
            action_cost_UU=world.action_cost_UU, start_DD=start_DD, discount=world.discount,
        )  # fmt: skip
        # Only the four states are noisy; `value` would give noise to the sinusoid too.
        noise_DD = np.diag([world.noise_std**2] * 4 + [0.0] * 2)
        costs_DD = start_DD + world.discount / (1 - world.discount) * noise_DD
        found.append(-float((blind.cost_matrix(gain_APUD) * costs_DD).sum((-1, -2)).min()))
    return max(found)


def make(key_R: Keys) -> Rows:
    """Return exact values of both, by environment steps of TD3 with replay in 8 worlds at once."""
    settings = Settings(steps=STEPS, every=EVERY, players=PLAYERS, updates=UPDATES)
    played = PLAYERS * EVERY * (1 + np.arange(STEPS // EVERY))
    for kind, noise in WAKES.items():
        world = wake(noise)
        best, idle = world.value(world.optimal_gain()), world.value(np.zeros((1, 4)))
        gains = td3(world, key_R, settings)
        blind_ER = np.full((len(gains), len(key_R)), best_sinusoid(world))
        for name, value_ER in (("learned", world.value(gains)), ("best sinusoid", blind_ER)):
            frame, _ = combinations(key_R, wake=[kind], controller=[name], steps=played)
            share_ER = np.maximum((value_ER - idle) / (best - idle), WORST)
            yield frame.assign(share=share_ER.ravel())


EXPERIMENT = Experiment(
    question="Does a controller learned off policy in parallel beat the best sinusoid that a grid finds?",
    source="Fin-ray async parallel training, as in the table of systems; from secondary notes",
    differs="a damped oscillator that follows a wake, wandering or steady, exact values; no fin, no water",
    compute=of_keys(NAME, make, SEEDS, {"players": PLAYERS, "updates": UPDATES}),
    keys=("run", "wake", "controller", "steps", "seed"), metrics=("share",),
    margins={"share of the way from no force to the optimal gain": MARGIN},
    figure=Plot(
        "curves by arm", x="steps: environment steps", y="share: value (0 no force, 1 optimal)",
        arm=("wake", "controller"),
        says="Shows exact values along training of a force on a damped oscillator that should follow a "
        "wake, which wanders or turns evenly (steady); learned is a linear controller trained off-policy by "
        "TD3 with replay in 8 worlds at once; the other is the best sinusoid of a grid of frequencies, "
        "amplitudes and phases, which does not train.",
    ),
    systems={"Fin-ray async parallel training": Part()},
)  # fmt: skip

LEARNED, BLIND = {"controller": "learned"}, {"controller": "best sinusoid"}
ask(EXPERIMENT, "a-learned-controller-beats-the-best-sinusoid", "After 5120 steps in 8 parallel worlds a "
    "controller learned off-policy is worth 0.2 more, of the way from no force to the optimal gain, than the "
    "best of 3360 sinusoids, where the wake wanders and where it turns evenly.", LEARNED, BLIND,
    MARGIN, "share", over={"steps": 5120, "wake": WAKES})  # fmt: skip
