"""A key-value cache with spare capacity, so that a new token does not copy all earlier ones."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer


class RoomyLayer(DynamicLayer):
    """Keys and values [B, heads, S, D] as views of larger buffers, which double when they are full.

    For sampling only: it writes in place, which a backward pass cannot follow.
    """

    def __init__(self, layer: DynamicLayer, room: int) -> None:
        super().__init__()
        self.lazy_initialization(layer.keys, layer.values)
        self._seen = layer.keys.shape[-2]
        self._buffers = [_widened(value, room) for value in (layer.keys, layer.values)]
        self._show()

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values; return all of them."""
        first, self._seen = self._seen, self._seen + key_states.shape[-2]
        if self._seen > self._buffers[0].shape[-2]:
            self._buffers = [_widened(buffer, 2 * self._seen) for buffer in self._buffers]
        for buffer, new in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[..., first : self._seen, :] = new
        self._show()
        return self.keys, self.values

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep some rows."""
        self._buffers = [buffer[indices] for buffer in self._buffers]
        self._show()

    def _show(self) -> None:
        self.keys, self.values = (buffer[..., : self._seen, :] for buffer in self._buffers)


def _widened(value: Tensor, room: int) -> Tensor:
    wide = value.new_empty((*value.shape[:-2], max(room, value.shape[-2]), value.shape[-1]))
    wide[..., : value.shape[-2], :] = value
    return wide


def make_room(cache: Any, tokens: int) -> None:
    """Reserve space for more tokens in every full-length layer; windowed layers stay as they are."""
    for index, layer in enumerate(cache.layers):
        if type(layer) is DynamicLayer:
            cache.layers[index] = RoomyLayer(layer, layer.keys.shape[-2] + tokens)


def select_rows(cache: Any, index_M: Tensor) -> None:
    """Keep some rows of every layer."""
    with torch.no_grad():
        cache.batch_select_indices(index_M)
