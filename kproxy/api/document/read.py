"""Files that may be YAML or JSON: host files and golden packets."""

from __future__ import annotations

from kproxy.api.document.json_text import read_json
from kproxy.api.document.tree import Document, DocumentError
from kproxy.api.document.yaml_text import read_yaml


def read_documents(text: str) -> list[Document]:
    """The documents of a file, empty ones with the value None; DocumentError when it is neither YAML nor JSON.

    JSON is read as JSON. What begins like JSON and is not, or repeats a key, is read as YAML, which knows the lines.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            document = read_json(text)
        except DocumentError:
            pass
        else:
            if not document.duplicates:
                return [document]
    return list(read_yaml(text))
