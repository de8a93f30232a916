from random import Random
from dataclasses import replace
from tests.support.dataplane import agreement as a
from tests.support.dataplane.compare_rules import Generator, ruleset
from kproxy.netfilter import print_save
random=Random(31); print(print_save(ruleset(Generator(random, fields=True).rules())))
