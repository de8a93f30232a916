"""`kproxy audit`: the command, its text, and JUnit."""
