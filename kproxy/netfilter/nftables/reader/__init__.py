"""Reading nft's text. `script.py` reads a whole text; below it one module for each part of the language."""
