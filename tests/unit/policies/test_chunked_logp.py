"""Chunked log-probabilities: the values and gradients of log_softmax and gather, without their memory."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from testbed.policies.hf import chunked_logp as chunked

N, V, H = 13, 11, 5


def inputs(dtype=torch.float64, bias=True):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    token_N = torch.randint(V, (N,), generator=generator)
    return draw(N, H), draw(V, H), draw(V) if bias else None, token_N


@pytest.fixture(params=[1, 4, 13, 1000])
def rows(request, monkeypatch):
    """Chunks of one row, of a size that leaves a rest, of all rows, and of more."""
    monkeypatch.setattr(chunked, "chunk_rows", lambda vocabulary, device: request.param)


def naive(hidden, weight, bias, token, scale):
    logits = torch.nn.functional.linear(hidden, weight, bias) * scale
    return logits.log_softmax(-1).gather(1, token[:, None])[:, 0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("scale", [1.0, 0.4])
@pytest.mark.usefixtures("rows")
def test_values_and_gradients_are_those_of_log_softmax_and_gather(bias, scale):
    hidden, weight, bias_V, token = inputs(bias=bias)
    leaves = [x for x in (hidden, weight, bias_V) if x is not None]
    out_N = torch.linspace(-1, 2, N, dtype=torch.float64)
    ours = chunked.chunked_logp(hidden, weight, bias_V, token, scale)
    theirs = naive(hidden, weight, bias_V, token, scale)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    for one, other in zip(
        torch.autograd.grad((ours * out_N).sum(), leaves),
        torch.autograd.grad((theirs * out_N).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("rows")
def test_gradients_are_slopes():
    hidden, weight, bias_V, token = inputs()
    assert torch.autograd.gradcheck(
        lambda h, w, b: chunked.chunked_logp(h, w, b, token, 0.7), (hidden, weight, bias_V)
    )


@pytest.mark.usefixtures("rows")
def test_entropy_is_that_of_the_softmax():
    hidden, weight, bias_V, _ = inputs()
    law = (torch.nn.functional.linear(hidden, weight, bias_V) * 0.4).log_softmax(-1)
    expected = -(law.exp() * law).sum(-1)
    torch.testing.assert_close(chunked.chunked_entropy(hidden, weight, bias_V, 0.4), expected)


@pytest.mark.usefixtures("rows")
def test_one_pass_gives_both_without_another_bit():
    hidden, weight, bias_V, token = inputs()
    logp, entropy = chunked.chunked_logp_entropy(hidden, weight, bias_V, token, 0.4)
    alone = chunked.chunked_logp(hidden, weight, bias_V, token, 0.4)
    assert torch.equal(logp, alone)
    assert torch.equal(entropy, chunked.chunked_entropy(hidden, weight, bias_V, 0.4))
    assert not entropy.requires_grad
    for found, expected in zip(
        *(torch.autograd.grad(x.sum(), (hidden, weight, bias_V)) for x in (logp, alone)), strict=True
    ):
        assert torch.equal(found, expected)


def test_half_precision_weights_give_float32_log_probabilities():
    hidden, weight, bias_V, token = inputs(torch.bfloat16)
    ours = chunked.chunked_logp(hidden, weight, bias_V, token)
    exact = naive(hidden.float(), weight.float(), bias_V.float(), token, 1.0)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, exact, rtol=0, atol=0.05)
    ours.sum().backward()
    assert {x.grad.dtype for x in (hidden, weight, bias_V)} == {torch.bfloat16}


def test_no_tokens_give_no_values_and_zero_gradients():
    hidden, weight, bias_V, token = inputs()
    empty = chunked.chunked_logp(hidden[:0], weight, bias_V, token[:0])
    empty.sum().backward()
    assert empty.shape == (0,)
    assert (weight.grad == 0).all()
    assert chunked.chunked_entropy(hidden[:0], weight, bias_V).shape == (0,)


def test_the_score_of_a_token_is_the_gradient_of_its_log_probability():
    logits = torch.randn(
        V, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    token = torch.arange(V).flip(0)
    (grad,) = torch.autograd.grad(chunked.logits_logp(logits, token).sum(), logits)
    torch.testing.assert_close(chunked.logits_score_norm(logits, token), grad.square().sum(-1))


def test_a_token_without_mass_adds_nothing_to_the_entropy():
    logits = torch.tensor([[0.0, 0.0, -torch.inf]])
    torch.testing.assert_close(chunked.logits_entropy(logits), torch.tensor([2.0]).log())


class Largest(TorchDispatchMode):
    """The most numbers any single tensor held while the mode was on."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@pytest.mark.slow
def test_no_tensor_ever_holds_all_logits():
    tokens, vocabulary, width = 2048, 32768, 8
    hidden = torch.zeros(tokens, width, requires_grad=True)
    weight = torch.zeros(vocabulary, width, requires_grad=True)
    token = torch.zeros(tokens, dtype=torch.int64)
    with Largest() as largest:
        chunked.chunked_logp(hidden, weight, None, token).sum().backward()
        chunked.chunked_entropy(hidden, weight, None)
    assert largest.numbers * 4 <= chunked.CHUNK_BYTES["cpu"]
    assert tokens * vocabulary * 4 >= 8 * chunked.CHUNK_BYTES["cpu"]
