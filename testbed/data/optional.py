"""Fields of a container that may be missing."""

import torch
from torch import Tensor

from testbed.errors import UserError


class OptionalFields:
    """A container of tensors that may be None, with an error for missing ones."""

    def require(self, name: str, method: str) -> Tensor:
        """Return an optional field; raise UserError naming the method that needs it if it is missing."""
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            kind = type(self).__name__
            raise UserError(f"'{method}' needs {name}, which was not given; pass it to {kind}.")
        return value


def as_float(value: Tensor) -> Tensor:
    """Return whole numbers and booleans in torch's default type, and floats as they are."""
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())
