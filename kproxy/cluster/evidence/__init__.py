"""What was seen of a host and what was not: a value that the reader of a source makes, and every answer carries.

`unseen` has the value and its words, `signs` finds what a host's rules point to and do not show, `opened` puts rules in
its place that leave open what it does.
"""
