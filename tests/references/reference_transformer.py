"""The toy transformer for one sequence, one token and one head at a time, in float64."""

from collections.abc import Mapping, Sequence

import numpy as np

from envs.arrays import Floats


def next_token_laws(
    weight: Mapping[str, Floats], heads: int, start: int, tokens: Sequence[int], temperature: float = 1.0
) -> Floats:
    """Return log pi(. | tokens so far) behind every token, [tokens, V]; start is the first one's position."""
    return changing_laws([weight] * len(tokens), heads, start, tokens, temperature)


def changing_laws(
    weights: Sequence[Mapping[str, Floats]],
    heads: int,
    start: int,
    tokens: Sequence[int],
    temperature: float = 1.0,
) -> Floats:
    """Return the same when each token is read by weights of its own, and its keys and values are theirs."""
    vocabulary, width = weights[0]["head"].shape
    layers = sum(name.endswith("qkv") for name in weights[0])
    read = list(zip(weights, tokens, strict=True))
    stream = [w["embedding"][:, [t, vocabulary + start + i]].sum(1) for i, (w, t) in enumerate(read)]
    for i in range(layers):
        triples = [
            (w[f"layers.{i}.qkv"] @ _normalized(x)).reshape(3, heads, width // heads)
            for w, x in zip(weights, stream, strict=True)
        ]
        for t, (w, x) in enumerate(zip(weights, stream, strict=True)):
            attended = np.concatenate([_attended(triples[: t + 1], h) for h in range(heads)])
            x = x + w[f"layers.{i}.out"] @ attended
            stream[t] = x + w[f"layers.{i}.down"] @ np.maximum(w[f"layers.{i}.up"] @ _normalized(x), 0.0)
    logits = np.stack([w["head"] @ _normalized(x) for w, x in zip(weights, stream, strict=True)])
    logits /= temperature
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def _normalized(x: Floats) -> Floats:
    return x / np.sqrt((x**2).mean() + 1e-6)


def _attended(triples: Sequence[Floats], head: int) -> Floats:
    """What the last token reads in one head."""
    query = triples[-1][0, head]
    scores = np.array([query @ triple[1, head] for triple in triples]) / np.sqrt(len(query))
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(w * triple[2, head] for w, triple in zip(weights, triples, strict=True))
