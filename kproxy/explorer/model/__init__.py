"""One state of one source, or a copy with edits: what is known, and what follows from it."""
