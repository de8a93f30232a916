"""Printing nft's text. `listing.py` prints rule sets; below it one module for each part of the language."""
