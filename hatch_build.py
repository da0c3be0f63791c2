"""The README as a package index shows it: links and pictures of the repository are absolute, or left out."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Readme(MetadataHookInterface):
    """Makes the field `readme` of the metadata from README.md and `project.urls.Source`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_an_index(text, source)}


def for_an_index(text: str, source: str) -> str:
    """Return Markdown whose relative links lead to the repository at `source`, a forge's address.

    While the repository has none ("") a link becomes its words, and a picture goes with its caption.
    """
    if not source:
        text = re.sub(r"!\[[^\]]*\]\((?![a-z]+:)[^)]*\)\n\n\*[^*]+\*\n\n", "", text)

    def turned(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        if not source:
            return words
        kind = "raw" if picture else "blob"
        return f"{picture}[{words}]({source.rstrip('/')}/{kind}/main/{target})"

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)", turned, text)
