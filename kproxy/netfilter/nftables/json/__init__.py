"""Reading of nft's JSON: each object becomes a command in the words of a script."""
