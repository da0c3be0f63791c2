"""Engine mismatch: small number formats and their scales, by hand and against torch.

One precision on both sides: a policy that learns with the roundings that it generates with.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from test_mismatch_training import TOY, TREE, uneven, uneven_start, with_engine
from torch import Tensor

from testbed.errors import UserError
from testbed.mismatch import Draw, engine
from testbed.mismatch.quantized import BFLOAT16, E4M3, e4, largest_by_block, scale_of, to_float, to_int8
from testbed.training.loop import train
from testbed.worlds.build_world import build_world
from testbed.worlds.rounded import Rounded


@pytest.mark.parametrize(
    ("given", "rounded"),
    [
        (448.0, 448.0),
        (449.0, 448.0),
        (1e9, 448.0),  # saturates
        (-1e9, -448.0),
        (1.0, 1.0),
        (1.0625, 1.0),  # halfway between 1 and 1.125: even mantissa
        (1.1875, 1.25),  # halfway between 1.125 and 1.25: even mantissa
        (1.07, 1.125),
        (15.5, 16.0),  # carries into the next exponent
        (2.0**-6, 2.0**-6),  # smallest normal
        (2.0**-9, 2.0**-9),  # smallest subnormal
        (2.0**-10, 0.0),  # halfway to it: even
        (1.5 * 2.0**-9, 2.0**-8),  # halfway between 1 and 2 smallest: even
        (2.5 * 2.0**-9, 2.0**-8),
        (7.4 * 2.0**-9, 7 * 2.0**-9),
        (0.0, 0.0),
        (-0.3, -0.3125),
    ],
)
def test_e4m3_rounds_as_by_hand(given, rounded):
    for dtype in (torch.float32, torch.float64):
        assert to_float(torch.tensor(given, dtype=dtype), E4M3).item() == rounded, dtype


def test_e4m3_has_its_253_finite_values_and_rounds_like_torch():
    finite = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    finite = finite[torch.isfinite(finite)]
    assert len(finite.unique()) == 253  # +0 and -0 are equal
    assert torch.equal(to_float(finite, E4M3), finite)
    ladder = finite.unique()
    halves = (ladder[1:] + ladder[:-1]) / 2
    values = torch.cat([halves, torch.nextafter(halves, halves + 1), 300 * torch.randn(5000)]).clamp(
        -448, 448
    )
    assert torch.equal(to_float(values, E4M3), values.to(torch.float8_e4m3fn).float())


def test_fewer_mantissa_bits_leave_the_numbers_of_e4m3_whose_last_bits_are_zero():
    nan, codes = 0x7F, torch.arange(256, dtype=torch.uint8)
    for bits in (3, 2, 1, 0):
        some = codes[(codes % 2 ** (3 - bits) == 0) & (codes % 128 != nan)]
        normal = some.view(torch.float8_e4m3fn).float()
        normal = normal[normal.abs() >= 2.0**-6]
        assert torch.equal(to_float(normal, e4(bits)), normal)
        between = torch.linspace(-500, 500, 4001)
        kept = set(normal.tolist())
        rounded = to_float(between, e4(bits))
        assert {x for x in rounded.tolist() if abs(x) >= 2.0**-6} <= kept
        assert rounded.max() == e4(bits).largest == max(kept)
    with pytest.raises(UserError, match="mantissa is 4"):
        engine("fp8-tensor", mantissa=4)


@pytest.mark.parametrize("name", ["fp8-tensor", "fp8-activations"])
def test_an_engine_of_fewer_bits_rounds_to_them(name):
    given = torch.tensor([[[1.0, 0.9, 0.6, -0.3]]])
    seen = []
    made = engine(name, mantissa=0)
    if name == "fp8-tensor":
        seen.append(made.weights(given.flatten(1), {"layers.0.up": (1, 4)}, Draw((0,))))
    else:

        class Spy:
            def with_rounding(self, rounding):
                seen.append(rounding(given.mT))

        made.forward(Spy(), Draw((0,)))
    assert seen[0].flatten().tolist() == [1.0, 1.0, 0.5, -0.25]


def test_bf16_rounds_like_torch_and_only_once_from_float64():
    values = torch.cat(
        [torch.randn(4000) * 10.0 ** torch.randint(-38, 38, (4000,)), torch.tensor([3.4e38, 1e-40])]
    )
    assert torch.equal(to_float(values, BFLOAT16), values.to(torch.bfloat16).float())
    above_tie = torch.tensor(1 + 2**-8 + 2**-40, dtype=torch.float64)
    assert to_float(above_tie, BFLOAT16).item() == 1 + 2**-7  # through float32 it would become 1


def test_numbers_that_are_not_finite_stay_visible():
    assert to_float(torch.tensor(math.nan), E4M3).isnan()
    assert to_float(torch.tensor(math.nan), BFLOAT16).isnan()
    assert to_float(torch.tensor(-math.inf), BFLOAT16).item() == -math.inf
    broken = engine("fp8-tensor").weights(torch.tensor([[1.0, math.inf]]), {"w": (1, 2)}, Draw((0,)))
    assert broken.isnan().any()


def test_int8_is_off_by_at_most_half_a_scale_and_reaches_its_ends():
    w = torch.randn(1, 6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scale = scale_of(largest_by_block(w, 1, 9), 127)
    rounded = to_int8(w, scale)
    assert ((rounded - w).abs() <= scale / 2 * (1 + 1e-12)).all()
    assert torch.equal((rounded / scale).abs().amax(-1).round(), torch.full((1, 6), 127.0).double())
    assert torch.allclose(rounded / scale, (rounded / scale).round(), atol=1e-12)
    assert to_int8(torch.tensor(200.0), torch.tensor(1.0)) == 127


@pytest.mark.parametrize("per_channel", [True, False])
def test_int8_has_one_scale_per_output_or_one_for_all(per_channel):
    w = torch.tensor([[[127.0, 63.4, -1.0], [1.27, 0.5, -0.614]]], dtype=torch.float64)
    made = engine("int8", per_channel=per_channel)
    rounded = made.weights(w.flatten(1), {"w": (2, 3)}, Draw((0,))).view_as(w)
    second = [1.27, 0.5, -0.61] if per_channel else [1.0, 0.0, -1.0]  # 0.5 is a tie: even
    expected = torch.tensor([[[127.0, 63.0, -1.0], second]], dtype=torch.float64)
    torch.testing.assert_close(rounded, expected, rtol=0, atol=1e-12)


def test_a_block_has_its_own_scale_and_edges_are_cut():
    w = torch.tensor([[[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [7.0, 8.0, 0.0]]])
    expected = [[5.0, 5.0, 6.0], [5.0, 5.0, 6.0], [8.0, 8.0, 0.0]]
    assert torch.equal(largest_by_block(w, 2, 2)[0], torch.tensor(expected))
    assert scale_of(torch.tensor(0.0), 448.0) == 1.0


def test_a_power_of_two_scale_is_the_next_one_up():
    scale = scale_of(torch.tensor([448.0, 449.0, 896.0, 0.0, 100.0]), 448.0, power_of_two=True)
    assert scale.tolist() == [1.0, 2.0, 2.0, 1.0, 0.25]


def errors(block: int | None, power_of_two: bool, w: Tensor) -> Tensor:
    chosen = engine("fp8-block", block=block, power_of_two=power_of_two) if block else None
    made = chosen or engine("fp8-tensor", power_of_two=power_of_two)
    layout = {"w": tuple(w.shape[1:])}
    return (made.weights(w.flatten(1), layout, Draw((0,))).view_as(w) - w).abs()


def test_finer_fp8_scales_never_hurt_an_element_only_with_powers_of_two():
    spread = torch.exp(4 * torch.randn(1, 16, 16, generator=torch.manual_seed(1), dtype=torch.float64))
    w = spread * torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert (errors(4, True, w) <= errors(None, True, w)).all()
    assert (errors(4, True, w) < errors(None, True, w)).any()
    # Scales max|W| / 448 shift the grid: the bound max|W| / 28 is finer, some elements are worse off.
    assert (errors(4, False, w) <= largest_by_block(w, 4, 4) / 28 * (1 + 1e-12)).all()
    assert (errors(None, False, w) <= w.abs().amax() / 28 * (1 + 1e-12)).all()
    assert (errors(4, False, w) > errors(None, False, w)).any()


__all__ = ["uneven_start"]

FP8 = "fp8-tensor+fp8-activations matrices=all"


def unified(run, precision):
    return dataclasses.replace(run, policy_args=(*run.policy_args, ("precision", precision)))


@pytest.mark.parametrize(("run", "precision"), [(TREE, "int8 matrices=all"), (TOY, FP8)], ids=["tree", "toy"])
def test_one_precision_on_both_sides_has_ratio_one_and_learns_the_full_weights(run, precision, uneven_start):
    both = unified(run, precision)
    table = train(both)
    assert np.abs(table["rollout_corr/log_rho_token_p999"]).max() < 5e-6
    world, plain = build_world((both,)), build_world((run,))
    assert torch.equal(world.initial(), plain.initial())
    theta = uneven(plain)
    assert not torch.equal(*(x.logp(theta, plain.generate(theta, 0)) for x in (world, plain)))


def test_the_gradient_of_a_rounded_policy_is_taken_at_the_rounded_weights(uneven_start):
    world = build_world((unified(TREE, "int8 matrices=all"),))
    theta = uneven(world)
    rollout = world.generate(theta, 0)
    rounded = world.policy.weights(theta)
    gradients = []
    for start, logp in ((theta, world.logp), (rounded, build_world((TREE,)).logp)):
        leaf = start.detach().requires_grad_()
        gradients.append(torch.autograd.grad(logp(leaf, rollout).sum(), leaf)[0])
    assert not torch.equal(theta, rounded)
    assert torch.equal(*gradients)


def test_a_base_model_is_the_same_at_every_precision():
    warm = dataclasses.replace(TOY, warm_start_steps=3)
    assert torch.equal(build_world((warm,)).initial(), build_world((unified(warm, FP8),)).initial())


def test_every_method_of_a_rounded_policy_reads_rounded_weights():
    world = build_world((unified(TOY, "bf16"),))
    plain = build_world((TOY,))
    theta = uneven(plain)
    rounded = engine("bf16").weights(theta, world.policy.layout, None)
    rollout = plain.generate(theta, 0)
    for name in ("logp", "entropy", "score_norm"):
        assert torch.equal(getattr(world, name)(theta, rollout), getattr(plain, name)(rounded, rollout)), name
    assert np.array_equal(world.accuracy(theta), plain.accuracy(rounded))
    assert torch.equal(world.generate(theta, 1).logp_mu_RBT, plain.generate(rounded, 1).logp_mu_RBT)
    assert torch.equal(world.greedy_reward(theta, rollout), plain.greedy_reward(rounded, rollout))


def test_a_precision_reaches_what_linear_layers_read():
    world, plain = build_world((unified(TOY, "fp8-activations"),)), build_world((TOY,))
    theta = uneven(plain)
    rollout = plain.generate(theta, 0)
    assert (world.logp(theta, rollout) - plain.logp(theta, rollout)).abs().max() > 1e-4
    assert torch.equal(world.policy.weights(theta), theta)


@pytest.mark.parametrize("precision", ["layer-noise", "temperature", "stale-copy", "skip-layers"])
def test_a_precision_that_two_sides_cannot_share_is_refused(precision):
    with pytest.raises(UserError, match=f"precision is '{precision}', which changes more than rounding"):
        build_world((unified(TOY, precision),))


def test_a_mismatch_can_lie_on_top_of_a_precision():
    run = with_engine(unified(TREE, "int8 matrices=all"), "logit-noise")
    world = build_world((run,))
    assert isinstance(world.policy, Rounded)
    assert train(run)["rollout_corr/kl_mu_pi_k2"][0] > 1e-4


def in_blocks(name, *rows):
    w_IJ = torch.tensor(rows, dtype=torch.float32)
    return engine(name).weights(w_IJ.flatten()[None], {"w": tuple(w_IJ.shape)}, Draw((0,))).view(w_IJ.shape)


def test_q4_0_keeps_the_largest_weight_of_a_block_and_cuts_its_opposite():
    row = [-8.0, 8.0, 3.4, 3.5, -3.5, 0.0, *[0.0] * 26]
    assert in_blocks("q4-0", row)[0, :6].tolist() == [-8.0, 7.0, 3.0, 4.0, -3.0, 0.0]
    assert in_blocks("q4-0", [-w for w in row])[0, :6].tolist() == [8.0, -7.0, -3.0, -4.0, 3.0, 0.0]


def test_q8_0_rounds_halves_away_from_zero():
    assert in_blocks("q8-0", [127.0, 2.5, -2.5, 1.49, *[0.0] * 28])[0, :4].tolist() == [127, 3, -3, 1]


@pytest.mark.parametrize(("name", "levels"), [("q4-0", 8), ("q8-0", 127)])
def test_blocks_of_32_weights_have_a_scale_of_sixteen_bits_each(name, levels):
    """A block of zeros stays, and a large block leaves the next one alone; a short last block is whole."""
    large, small = [100.0] * 32, [1e-3 * levels, 1e-3] + [0.0] * 6
    out_J = in_blocks(name, large + small)[0]
    step = torch.tensor(1e-3).half().float()
    assert out_J[:32].eq(100.0 if name == "q4-0" else torch.tensor(100 / 127).half().float() * 127).all()
    assert out_J[32:].tolist() == [levels * step, step, *[0.0] * 6]
    assert not in_blocks(name, [0.0] * 40).any()
