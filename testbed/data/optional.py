"""Fields of a container that may be missing."""

from torch import Tensor

from testbed.errors import UserError


class OptionalFields:
    """A container whose optional tensors are asked for by whoever needs them."""

    def require(self, name: str, method: str) -> Tensor:
        """Return an optional field; raise UserError naming the method that needs it when it is missing."""
        value = getattr(self, name)
        if not isinstance(value, Tensor):
            kind = type(self).__name__
            raise UserError(f"'{method}' needs {name}, which was not given; pass it to {kind}.")
        return value
