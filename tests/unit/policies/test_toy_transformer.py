"""The toy transformer against a plain one-sequence reference, against itself, and against exact laws."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numba import njit
from references.reference_transformer import next_token_laws
from support.refusals import refuses
from torch import Tensor

from testbed.errors import UserError
from testbed.policies.toy import compiled
from testbed.policies.toy.attention import Tree, dense_tree_attention, tree_attention
from testbed.policies.toy.decoder import attend_step, dense_step, of_version, prompt_cache
from testbed.policies.toy.layers import Shape, finish_block, waves
from testbed.policies.toy.simd import exp2, load, store
from testbed.policies.toy.toy_sampler import inverse_cdf, read
from testbed.policies.toy.toy_transformer import LOGP_TOLERANCE, ToyTransformer, _before_tokens

PAD = 4


@dataclass(frozen=True)
class Sizes:
    """All the transformer knows of a task."""

    vocabulary: int = 5
    prompt_length: int = 6
    response_length: int = 5
    end_token: int | None = None
    pad_token: int | None = None
    tool_T: tuple[bool, ...] = ()


PADDED = Sizes(pad_token=PAD, end_token=0)


def drawn(sizes: Sizes, replicas: int = 3, prompts: int = 2, group: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts, responses and a full mask.

    Where the task pads, prompts stand behind 0 to Q-1 tokens of padding; the first has the token inside.
    """
    random = torch.Generator().manual_seed(0)
    Q, T, V = sizes.prompt_length, sizes.response_length, sizes.vocabulary
    prompt = torch.randint(V, (replicas, prompts, Q), generator=random)
    prompt[..., -1] = 1  # a prompt of padding alone is none
    if sizes.pad_token is not None:
        padding = torch.arange(replicas * prompts).view(replicas, prompts, 1) % Q
        prompt = torch.where(torch.arange(Q) < padding, sizes.pad_token, prompt)
        prompt[0, 0, :2] = torch.tensor([0, sizes.pad_token])
    token = torch.randint(V, (replicas, prompts * group, T), generator=random)
    return prompt, token, torch.ones_like(token, dtype=torch.bool)


def weights_of(policy: ToyTransformer, replicas: int, scale: float = 3.0) -> Tensor:
    """Initial weights, enlarged so that attention and laws are far from uniform."""
    return scale * policy.initial(range(replicas))


def reference_laws(policy: ToyTransformer, theta: Tensor, prompt: Tensor, token: Tensor) -> Tensor:
    """log pi(. | before) of every response token, [R, B, T, V], by the plain reference."""
    named = {name: w.double().numpy() for name, w in policy.shape.named(theta).items()}
    Q, group = prompt.shape[2], token.shape[1] // prompt.shape[1]
    laws = np.empty((*token.shape, policy.shape.vocabulary))
    for r, b in itertools.product(range(token.shape[0]), range(token.shape[1])):
        row = prompt[r, b // group].tolist()
        start = next((k for k, t in enumerate(row) if t != policy.task.pad_token), Q)
        weight = {name: w[r] for name, w in named.items()}
        read = row[start:] + token[r, b, :-1].tolist()
        laws[r, b] = next_token_laws(weight, policy.heads, start, read, policy.temperature)[Q - start - 1 :]
    return torch.from_numpy(laws)


@pytest.mark.parametrize("sizes", [Sizes(), PADDED, Sizes(prompt_length=4, response_length=1)])
@pytest.mark.parametrize("heads", [1, 2, 8], ids=["head-16", "head-8", "head-2-dense"])
def test_logp_is_that_of_a_plain_transformer(sizes, heads):
    policy = ToyTransformer(sizes, width=16, heads=heads, temperature=0.8)
    theta, (prompt, token, mask) = weights_of(policy, 3), drawn(sizes)
    expected = reference_laws(policy, theta, prompt, token).gather(3, token[..., None])[..., 0]
    assert expected.std() > 0.2
    torch.testing.assert_close(policy.logp(theta, prompt, token, mask).double(), expected, atol=2e-6, rtol=0)


def test_logp_in_float64_is_that_of_a_plain_transformer_to_rounding():
    policy = ToyTransformer(PADDED, width=16, layers=3, dtype=torch.float64)
    theta, (prompt, token, mask) = weights_of(policy, 3), drawn(PADDED)
    expected = reference_laws(policy, theta, prompt, token).gather(3, token[..., None])[..., 0]
    torch.testing.assert_close(policy.logp(theta, prompt, token, mask), expected, atol=1e-12, rtol=0)


def test_entropy_is_that_of_the_plain_laws():
    policy = ToyTransformer(PADDED, width=16, temperature=1.3)
    theta, (prompt, token, mask) = weights_of(policy, 3), drawn(PADDED)
    mask[:, 1, 2:] = False
    laws = reference_laws(policy, theta, prompt, token)
    expected = torch.where(mask, -(laws.exp() * laws).sum(-1), 0.0)
    entropy = policy.entropy(theta, prompt, token, mask).double()
    torch.testing.assert_close(entropy, expected, atol=2e-6, rtol=0)
    one = torch.nn.functional.one_hot(token, laws.shape[-1])
    norms = torch.where(mask, (one - laws.exp()).square().sum(-1), 0.0)
    found = policy.score_norm(theta, prompt, token, mask).double()
    torch.testing.assert_close(found, norms, atol=2e-6, rtol=0)


@pytest.mark.slow
def test_the_gradient_passes_gradcheck():
    sizes = Sizes(vocabulary=3, prompt_length=2, response_length=3, pad_token=2)
    policy = ToyTransformer(sizes, width=4, layers=2, heads=2, expansion=2, dtype=torch.float64)
    prompt, token, mask = drawn(sizes, replicas=2, prompts=2, group=2)
    mask[0, 1, 1:] = False
    theta = weights_of(policy, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: policy.logp(t, prompt, token, mask), theta)


@pytest.mark.parametrize("sizes", [Sizes(), PADDED, Sizes(prompt_length=8, response_length=2)])
@pytest.mark.parametrize("group", [1, 4])
def test_the_compiled_gradient_is_the_float64_gradient(sizes, group):
    single = ToyTransformer(sizes, width=16, heads=2)
    exact = ToyTransformer(sizes, width=16, heads=2, dtype=torch.float64)
    prompt, token, mask = drawn(sizes, group=group)
    theta, advantage = weights_of(single, 3), torch.linspace(-1, 1, mask.numel()).view(mask.shape)
    gradients = []
    for policy in (single, exact):
        leaf = theta.to(policy.dtype).requires_grad_()
        loss = (policy.logp(leaf, prompt, token, mask) * advantage).sum()
        gradients.append(torch.autograd.grad(loss, leaf)[0].double())
    assert gradients[1].norm() > 1
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-6 * gradients[1].norm().item(), rtol=0)


def test_compiled_blocks_and_their_gradients_are_those_of_float64_however_many_the_columns():
    random = torch.Generator().manual_seed(1)
    shape = Shape(vocabulary=5, positions=3, width=8, layers=1, hidden=16)
    theta = torch.stack([shape.initial(np.random.default_rng(seed)) for seed in range(2)])
    inputs = [torch.randn(2, 8, 600, generator=random, dtype=torch.float64) for _ in range(2)]
    inputs[0][0, :, 3] = 0.0  # a zero vector has no direction
    seen = []
    for dtype in (torch.float32, torch.float64):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in (theta, *inputs)]
        layer = shape.weights(leaves[0]).layers[0]
        y = finish_block(leaves[1], leaves[2], layer)
        loss = (layer.read(y).sin().sum(1) * torch.linspace(-1, 1, 600, dtype=dtype)).sum()
        seen.append([y.double(), *(g.double() for g in torch.autograd.grad(loss, leaves))])
    for single, exact in zip(*seen, strict=True):
        torch.testing.assert_close(single, exact, atol=2e-6 * exact.norm().item(), rtol=0)


@pytest.mark.parametrize("scale", [1.0, 50.0], ids=["soft", "hard"])
def test_compiled_and_dense_tree_attention_agree(scale):
    random = torch.Generator().manual_seed(1)
    first = torch.randint(6, (2, 3), generator=random)
    tree = Tree(prompts=3, length=7, group=2, slots=5, first_RN=first)
    qkv = torch.randn(2, 3 * 16, 3 * (7 + 5 * 2), generator=random)
    qkv[:, :32] *= scale
    exact = dense_tree_attention(qkv.double(), tree, heads=2)
    apart = qkv.transpose(1, 2).contiguous().transpose(1, 2)  # features lie side by side, not columns
    assert torch.equal(tree_attention(apart, tree, heads=2), tree_attention(qkv, tree, heads=2))
    # Scores of thousands leave float32 only differences of 1e-4.
    torch.testing.assert_close(
        tree_attention(qkv, tree, heads=2).double(), exact, atol=2e-6 if scale == 1 else 2e-3, rtol=0
    )


@pytest.mark.parametrize("group", [1, 5, 11], ids=["one", "copied-prompt", "shared-prompt"])
def test_compiled_and_dense_steps_agree(group):
    random = torch.Generator().manual_seed(1)
    first = torch.randint(6, (2, 3), generator=random)
    read = torch.randn(2, 3 * 16, 3 * 7, generator=random)
    cache = prompt_cache(read, first, heads=2, length=7, group=group)
    own = torch.randn(4, 2, 3 * 16, 3 * group, generator=random)
    torch.testing.assert_close(attend_step(own, cache), dense_step(own, cache), atol=2e-6, rtol=0)
    own[:, :, :16] *= 1000  # scores of thousands, whose exponentials float32 does not have
    torch.testing.assert_close(attend_step(own, cache), dense_step(own, cache), atol=2e-3, rtol=0)


def test_without_numba_the_policy_draws_the_same_tokens(monkeypatch):
    policy = ToyTransformer(PADDED)
    prompt, token, mask = drawn(PADDED)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    theta = policy.initial(range(3))
    drawn_token, drawn_mask, logp_mu = policy.sample(theta, prompt, 3, uniform)
    logp = policy.logp(theta, prompt, token, mask)
    monkeypatch.setattr(compiled, "installed", lambda: False)
    other_token, other_mask, other_logp_mu = policy.sample(theta, prompt, 3, uniform)
    assert torch.equal(other_token, drawn_token)
    assert torch.equal(other_mask, drawn_mask)
    torch.testing.assert_close(other_logp_mu, logp_mu, atol=1e-6, rtol=0)
    torch.testing.assert_close(policy.logp(theta, prompt, token, mask), logp, atol=1e-6, rtol=0)


def test_compiled_laws_of_logits_of_hundreds_are_those_of_torch(monkeypatch):
    policy = ToyTransformer(Sizes(), width=16)
    prompt, token, mask = drawn(Sizes())
    theta = policy.initial(range(3))
    policy.shape.named(theta)["head"].mul_(3000)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    own_token, own_mask, own_mu = policy.sample(theta, prompt, 3, uniform)
    logp = policy.logp(theta, prompt, own_token, own_mask)
    assert policy.logp(theta, prompt, token, mask).min() < -500
    monkeypatch.setattr(compiled, "installed", lambda: False)
    assert torch.equal(policy.sample(theta, prompt, 3, uniform)[0], own_token)
    expected = policy.logp(theta, prompt, own_token, own_mask)
    torch.testing.assert_close(own_mu, expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(logp, expected, atol=1e-3, rtol=0)


@pytest.mark.slow
def test_a_uniform_on_a_boundary_draws_the_token_above_it_in_every_loop(monkeypatch):
    policy = ToyTransformer(Sizes(vocabulary=4), width=16)
    theta = policy.initial([0])
    policy.shape.named(theta)["head"].zero_()
    uniform = (torch.arange(4, dtype=torch.float64) / 4).view(1, 4, 1).expand(1, 4, 5)
    prompt = torch.zeros(1, 1, 6, dtype=torch.int64)
    expected = torch.arange(4).view(1, 4, 1).expand(1, 4, 5)
    assert torch.equal(policy.sample(theta, prompt, 4, uniform)[0], expected)
    monkeypatch.setattr(compiled, "installed", lambda: False)
    assert torch.equal(policy.sample(theta, prompt, 4, uniform)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [Sizes(), PADDED])
def test_sampler_and_trainer_agree_on_log_probabilities(sizes, dtype):
    policy = ToyTransformer(sizes, dtype=dtype, temperature=0.7)
    prompt, token, _ = drawn(sizes, replicas=4, prompts=4, group=8)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    theta = policy.initial(range(4))
    token, mask, logp_mu = policy.sample(theta, prompt, 8, uniform)
    logp = policy.logp(theta, prompt, token, mask)
    assert logp_mu.dtype == logp.dtype == dtype
    tolerance = LOGP_TOLERANCE if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(logp_mu, logp, atol=tolerance, rtol=0)


def test_a_replica_alone_is_the_replica_in_a_stack():
    policy = ToyTransformer(PADDED)
    prompt, token, mask = drawn(PADDED, replicas=3)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    theta = policy.initial([7, 8, 9])
    tokens, masks, logp_mu = policy.sample(theta, prompt, 3, uniform)
    logp = policy.logp(theta, prompt, token, mask)
    for r in range(3):
        one = slice(r, r + 1)
        alone = policy.sample(theta[one], prompt[one], 3, uniform[one])
        assert torch.equal(alone[0], tokens[one])
        assert torch.equal(alone[1], masks[one])
        torch.testing.assert_close(alone[2], logp_mu[one], atol=1e-6, rtol=0)
        torch.testing.assert_close(
            policy.logp(theta[one], prompt[one], token[one], mask[one]), logp[one], atol=1e-6, rtol=0
        )


def test_replicas_do_not_see_each_other():
    policy = ToyTransformer(Sizes(), width=16)
    prompt, token, mask = drawn(Sizes(), replicas=2)
    theta = policy.initial([0, 1]).requires_grad_()
    (gradient,) = torch.autograd.grad(policy.logp(theta, prompt, token, mask)[0].sum(), theta)
    assert gradient[0].norm() > 0
    assert gradient[1].norm() == 0


def test_initial_weights_depend_on_the_seed_alone():
    policy = ToyTransformer(Sizes())
    stack = policy.initial([3, 5, 3])
    assert torch.equal(stack[0], stack[2])
    assert torch.equal(stack[1:2], policy.initial([5]))
    assert not torch.equal(stack[0], stack[1])
    assert stack.shape == (3, policy.parameters)


@pytest.mark.parametrize("width", [4, 5])
def test_positions_of_any_width_start_as_sines_and_cosines(width):
    found = waves(width, 7)
    assert found.shape == (width, 7)
    assert found[:, 0].tolist() == [0.0] * (width - width // 2) + [1.0] * (width // 2)


def test_even_uniforms_draw_every_first_token_in_proportion():
    sizes = Sizes(response_length=1)
    policy = ToyTransformer(sizes, width=16)
    theta, prompt = weights_of(policy, 1, scale=6.0), torch.tensor([[[0, 1, 2, 3, 1, 0]]])
    n = 1000
    uniform = ((torch.arange(n, dtype=torch.float64) + 0.5) / n).view(1, n, 1)
    token, mask, logp = policy.sample(theta, prompt, n, uniform)
    count = torch.bincount(token.flatten(), minlength=5)
    every = torch.arange(5).view(1, 5, 1)
    law = policy.logp(theta, prompt, every, torch.ones_like(every, dtype=torch.bool)).exp().flatten()
    assert law.max() > 2 * law.min()
    assert (count - n * law).abs().max() <= 1
    assert torch.equal(token.flatten(), token.flatten().sort().values)
    torch.testing.assert_close(logp.flatten().exp(), law[token.flatten()], atol=1e-6, rtol=0)
    assert mask.all()


def test_a_token_without_mass_is_never_drawn_and_every_token_is_in_range():
    law = torch.tensor([0.0, 0.25, 0.0, 0.75, 0.0], dtype=torch.float64).log()
    edges = torch.tensor([0.0, 0.25 - 2**-54, 0.25, 0.5, 1 - 2**-53], dtype=torch.float64)
    token = inverse_cdf(law[None, :, None].expand(1, 5, 5), edges[None])
    assert token.tolist() == [[1, 1, 3, 3, 3]]


def test_a_token_rarer_than_float32_can_tell_keeps_its_share_of_uniforms():
    law = torch.tensor([0.5, 1e-9, 0.5]).log()
    mass = law.double().exp()
    inside = (mass[0] + 0.5 * mass[1]) / mass.sum()
    assert inverse_cdf(law[None, :, None], inside.view(1, 1)).item() == 1


def test_even_a_uniform_of_one_draws_the_last_token_with_mass():
    law = torch.tensor([0.1, 0.2, 0.7, -np.inf]).log_softmax(0)
    assert inverse_cdf(law[None, :, None], torch.ones(1, 1, dtype=torch.float64)).item() == 2


def test_nothing_follows_an_end_token():
    sizes = Sizes(end_token=1, response_length=8)
    policy = ToyTransformer(sizes, width=16)
    prompt, token, _ = drawn(sizes, replicas=2, prompts=4, group=8)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    token, mask, logp = policy.sample(policy.initial([0, 1]), prompt, 8, uniform)
    ended = ((token == 1) & mask).long().cumsum(-1)
    behind = torch.cat([torch.zeros_like(ended[..., :1]), ended[..., :-1]], -1) > 0
    assert behind.any()
    assert torch.equal(mask, ~behind)
    assert token[behind].eq(0).all()
    assert logp[behind].eq(0).all()
    assert logp[mask].lt(0).all()


def test_generation_stops_when_every_response_has_ended():
    policy = ToyTransformer(Sizes(end_token=1), width=16)
    theta = policy.initial([0])
    policy.shape.named(theta)["head"].zero_()
    uniform = torch.full((1, 4, 5), 0.3, dtype=torch.float64)
    token, mask, logp = policy.sample(theta, torch.zeros(1, 2, 6, dtype=torch.int64), 2, uniform)
    assert token[..., 0].eq(1).all()
    assert mask.sum() == 4
    assert logp.sum().item() == pytest.approx(-4 * np.log(5), abs=1e-6)


def test_sampling_leaves_no_gradient():
    policy = ToyTransformer(Sizes(), width=16)
    prompt, token, mask = drawn(Sizes(), replicas=1)
    theta = policy.initial([0]).requires_grad_()
    _, _, logp = policy.sample(theta, prompt, 3, torch.rand(token.shape, dtype=torch.float64))
    assert not logp.requires_grad
    assert not policy.entropy(theta, prompt, token, mask).requires_grad


def test_broken_weights_show_as_nan_in_their_replica_alone():
    policy = ToyTransformer(Sizes(), width=16)
    prompt, token, mask = drawn(Sizes(), replicas=2)
    theta = policy.initial([0, 1])
    theta[1, -200:] = torch.nan
    drawn_token, _, logp_mu = policy.sample(theta, prompt, 3, torch.rand(token.shape, dtype=torch.float64))
    logp = policy.logp(theta, prompt, token, mask)
    assert logp[0].isfinite().all()
    assert logp_mu[0].isfinite().all()
    assert logp[1].isnan().all()
    assert logp_mu[1].isnan().all()
    assert drawn_token.ge(0).all()
    assert drawn_token.lt(5).all()


def test_scores_that_are_nan_stay_nan():
    tree = Tree(prompts=1, length=4, group=1, slots=2, first_RN=torch.zeros(1, 1, dtype=torch.int64))
    qkv = torch.ones(1, 12, 6)
    qkv[0, 4, 1] = torch.nan
    attended = tree_attention(qkv, tree, heads=1)
    assert attended[..., 0].isfinite().all()
    assert attended[..., 1:].isnan().all()


def test_the_compiled_power_of_two_is_exact_to_rounding():
    @njit
    def powers(exponent_N8, out_N8):
        for i in range(len(exponent_N8)):
            store(out_N8, i, 0, exp2(load(exponent_N8, i, 0)))

    exponent = np.concatenate([np.linspace(-126, 0, 100_005), [-126.5, -1e30, np.nan]]).astype(np.float32)
    out = np.empty_like(exponent)
    powers(exponent.reshape(-1, 8), out.reshape(-1, 8))
    exact = np.exp2(exponent[:-3].astype(np.float64))
    assert np.abs(out[:-3] / exact - 1).max() < 1.2e-7
    assert out[-3:-1].tolist() == [0.0, 0.0]
    assert np.isnan(out[-1])


@pytest.mark.parametrize("arguments", [{"width": 30}, {"layers": 0}, {"temperature": 0.0}])
def test_sizes_that_make_no_model_are_refused(arguments):
    refuses(".", ToyTransformer, Sizes(), **arguments)


def test_wrong_shapes_are_named():
    policy = ToyTransformer(Sizes(), width=16)
    prompt, token, mask = drawn(Sizes(), replicas=2)
    theta = policy.initial([0, 1])
    uniform = torch.rand(token.shape, dtype=torch.float64)
    with pytest.raises(UserError, match=r"prompt_RNQ has shape \(2, 2, 5\), expected \[R = 2, N, Q = 6\]"):
        policy.logp(theta, prompt[..., 1:], token, mask)
    refuses(r"token_RBT has shape \(2, 5, 5\)", policy.logp, theta, prompt, token[:, 1:], mask[:, 1:])
    refuses(r"theta_RP has shape", policy.logp, theta[:, 1:], prompt, token, mask)
    with pytest.raises(UserError, match="uniform_RBT has 6 sequences, expected 2 prompts times group 2"):
        policy.sample(theta, prompt, 2, uniform)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_numbers():
    sizes = PADDED
    prompt, token, mask = drawn(sizes)
    cpu, cuda = ToyTransformer(sizes, dtype=torch.float64), ToyTransformer(sizes, device="cuda")
    theta = weights_of(cpu, 3)
    expected = cpu.logp(theta, prompt, token, mask)
    got = cuda.logp(theta.cuda().float(), prompt.cuda(), token.cuda(), mask.cuda())
    torch.testing.assert_close(got.cpu().double(), expected, atol=2e-5, rtol=0)
    uniform = torch.rand(token.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    drawn_token, drawn_mask, logp_mu = cuda.sample(theta.cuda().float(), prompt.cuda(), 3, uniform.cuda())
    logp = cuda.logp(theta.cuda().float(), prompt.cuda(), drawn_token, drawn_mask)
    torch.testing.assert_close(logp_mu, logp, atol=2e-5, rtol=0)


def test_each_response_has_the_part_of_its_version_in_any_order():
    part = {version: torch.full((1, 2, 3), float(version)) for version in (2, 0, 5)}
    found = of_version(part, torch.tensor([[0, 5, 2]]))
    assert found.tolist() == [[[0.0, 5.0, 2.0]] * 2]


def test_every_token_is_preceded_by_its_prompt_or_by_the_token_before_it_of_its_own_response():
    """Columns: prompts 0 and 1, then token by token the responses of prompt 0, and those of prompt 1."""
    columns = torch.tensor([[[10, 20, 100, 110, 101, 111, 200, 210, 201, 211]]])
    found = _before_tokens(torch.cat([columns, -columns], 1), prompts=2, responses=4)
    assert found[0, :, :, 0].tolist() == [[10, 100, 101], [10, 110, 111], [20, 200, 201], [20, 210, 211]]
    assert torch.equal(found[..., 1], -found[..., 0])


def test_tokens_are_read_up_to_the_last_counted_one_over_those_between_that_are_not():
    """A decoder that gives token v of place t the log-probability -10 t - v, and says what it is fed."""
    fed = []

    def law(place):
        return -(10.0 * place + torch.arange(3.0))[None, :, None].expand(1, 3, 2)

    def after(token, t):
        fed.append((t, token.tolist()))
        return law(t + 1)

    decoder = SimpleNamespace(first=lambda: law(0), after=after)
    token = torch.tensor([[[1, 2, 0, 2], [2, 0, 1, 1]]])
    mask = torch.tensor([[[1, 0, 1, 0], [0, 0, 1, 0]]]).bool()
    assert read(decoder, token, mask).tolist() == [[[-1, 0, -20, 0], [0, 0, -21, 0]]]
    assert fed == [(0, [[1, 2]]), (1, [[2, 0]])]
    halved = read(decoder, token, mask, lambda law_RVB, t: law_RVB / (t + 1))
    torch.testing.assert_close(halved, torch.tensor([[[-1, 0, -20 / 3, 0], [0, 0, -7, 0]]]))
