"""The toy transformer for one sequence, one token and one head at a time, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def next_token_laws(
    weight: Mapping[str, Array], heads: int, start: int, tokens: Sequence[int], temperature: float = 1.0
) -> Array:
    """Return log pi(. | tokens so far) behind every token, [tokens, V]; start is the first one's position."""
    vocabulary, width = weight["head"].shape
    layers = sum(name.endswith("qkv") for name in weight)
    embedding = weight["embedding"]
    stream = [embedding[:, t] + embedding[:, vocabulary + start + i] for i, t in enumerate(tokens)]
    for i in range(layers):
        qkv, out, up, down = (weight[f"layers.{i}.{name}"] for name in ("qkv", "out", "up", "down"))
        triples = [(qkv @ _normalized(x)).reshape(3, heads, width // heads) for x in stream]
        for t, x in enumerate(stream):
            x = x + out @ np.concatenate([_attended(triples[: t + 1], h) for h in range(heads)])
            stream[t] = x + down @ np.maximum(up @ _normalized(x), 0.0)
    logits = np.stack([weight["head"] @ _normalized(x) for x in stream]) / temperature
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def _normalized(x: Array) -> Array:
    return x / np.sqrt((x**2).mean() + 1e-6)


def _attended(triples: Sequence[Array], head: int) -> Array:
    """What the last token reads in one head."""
    query = triples[-1][0, head]
    scores = np.array([query @ triple[1, head] for triple in triples]) / np.sqrt(len(query))
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(w * triple[2, head] for w, triple in zip(weights, triples, strict=True))
