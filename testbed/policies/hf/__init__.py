"""Hugging Face causal language models as policies.

Loading transformers makes torch create its compiler's folder, by default a readable one below the temporary
files. Here it lies in the user's cache and is private, unless TORCHINDUCTOR_CACHE_DIR says where.
"""

import os
from contextlib import suppress
from pathlib import Path

COMPILED = "TORCHINDUCTOR_CACHE_DIR"


def _keep_compiled_code_private() -> None:
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "off-policy-testbed", "compiled")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ[COMPILED] = str(place)


if COMPILED not in os.environ:
    with suppress(OSError, RuntimeError):  # no home, or a read-only one: torch's own place, then
        _keep_compiled_code_private()
