"""Expressions in CEL: what the checker says of them, and what they give for one object."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.cel.declarations import Declarations, escape
from kproxy.apiserver.cel.engine import Bound, Checker, CompileError, EvaluationError, program
from kproxy.apiserver.cel.values import cel_value
from kproxy.apiserver.crd.structural import compile_structural

SCHEMA: Any = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "n": {"type": "number"},
        "s": {"type": "string"},
        "namespace": {"type": "string"},
        "a-b": {"type": "string"},
        "untyped": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "l": {"type": "array", "items": {"type": "object", "properties": {"q": {"type": "integer"}}}},
        "ll": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        "m": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer"}}},
        },
        "t": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "duration"},
        "b": {"type": "string", "format": "byte"},
        "is": {"x-kubernetes-int-or-string": True},
        "snake_case": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
VALUE: Any = {
    "metadata": {"name": "a", "labels": {"x": "y"}}, "x": 5, "n": 3, "s": "abc", "namespace": "ns", "a-b": "d",
    "l": [{"q": 1}, {"q": 2}], "ll": [["a"]], "m": {"k": {"v": 1}}, "t": "2020-01-01T00:00:00Z", "d": "1h30m",
    "b": "YWJj", "is": "50%", "snake_case": {"a": "b"}, "open": {"z": 1},
}  # fmt: skip
NODE = compile_structural(SCHEMA, root=True)

TRUE = """
    self.x == 5 && self.n == 3.0 && self.s == 'abc'
    self.x > 1.5 && self.n > 1 && 1 < 2.5
    self.__namespace__ == 'ns' && self.a__dash__b == 'd'
    self.metadata.name == 'a'
    self.l.all(e, e.q > 0) && self.l.exists(e, e.q == 2) && self.l.exists_one(e, e.q == 2)
    self.l.exists(i, e, e.q == 2 && i == 1)
    self.l.map(e, e.q).sum() == 3 && self.l.filter(e, e.q > 1).size() == 1
    self.ll[0][0] == 'a' && self.ll.all(one, one.all(text, text.size() == 1))
    self.m.all(k, self.m[k].v == 1) && self.m.k.v == 1 && 'k' in self.m
    self.snake_case['a'] == 'b' && self.snake_case.a == 'b'
    self.t > timestamp('2019-01-01T00:00:00Z') && self.t.getFullYear() == 2020
    self.d > duration('1h')
    self.b == b'abc'
    type(self.is) == string && self.is == '50%'
    has(self.s) && has(self.open) && !has(self.l[0].q) || has(self.l[0].q)
    self.?s.orValue('q') == 'abc' && optional.none().orValue(1) == 1
    self.s.split('b').join('x') == 'axc' && 'ABC'.lowerAscii() == self.s
    '%s is %d'.format(['x', self.x]) == 'x is 5'
    'abc'.matches('^a') && 'abc'.find('b+') == 'b' && 'a1b2'.findAll('[0-9]') == ['1', '2']
    'a1b2'.findAll('[0-9]', 1) == ['1']
    [1, 2].isSorted() && ![2, 1].isSorted() && [1, 3].max() == 3 && ['b', 'a'].min() == 'a'
    [1.5, 2.5].sum() == 4.0
    sets.contains(['a', 'b'], ['a'])
    self.x / 0 == 1 || true
    cel.bind(y, self.x, y == 5)
    quantity('1Gi').isGreaterThan(quantity('1Mi')) && quantity('1') == quantity('1000m')
    quantity('1').add(2).asInteger() == 3 && quantity('3').sub(quantity('500m')).compareTo(quantity('2.5')) == 0
    quantity('-1').sign() == -1 && !quantity('1500m').isInteger() && quantity('1500m').asApproximateFloat() == 1.5
    isQuantity('1Gi') && !isQuantity('1GG')
    cidr('10.0.0.0/8').containsIP('10.1.1.1') && !cidr('10.0.0.0/8').containsIP(ip('11.1.1.1'))
    cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.1.1.1/8').masked() == cidr('10.0.0.0/8')
    cidr('10.1.1.1/8').ip() == ip('10.1.1.1') && cidr('10.0.0.0/8').prefixLength() == 8
    ip('::1').family() == 6 && ip('::1').isLoopback() && ip.isCanonical('::1') && !ip.isCanonical('::01')
    ip('8.8.8.8').isGlobalUnicast() && ip('169.254.1.1').isLinkLocalUnicast()
    isIP('1.2.3.4') && !isIP('1.2.3.04') && isCIDR('::/0') && !isCIDR('x')
    url('https://a.b:80/c%20d?x=1').getHost() == 'a.b:80' && url('https://[::1]:80/').getHostname() == '::1'
    url('https://a.b:80/?x=1&x=2').getQuery()['x'] == ['1', '2'] && url('https://a.b:80/').getPort() == '80'
    url('https://a/c%20d').getEscapedPath() == '/c%20d' && isURL('/a') && !isURL('a b')
    semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-a.1').isLessThan(semver('1.0.0'))
    semver('v1.2', true).minor() == 2 && !isSemver('v1.2') && isSemver('1.2.3-rc.1+b')
"""
"""An expression a line, each of which holds for VALUE."""

REFUSED = (
    ("self.z == 1", "ERROR: <input>:1:5: undefined field 'z'\n | self.z == 1\n | ....^"),
    ("self.untyped == 1", "undefined field 'untyped'"),
    ("self.open.foo == 1", "undefined field 'foo'"),
    ("self.metadata.labels == {}", "undefined field 'labels'"),
    ("self.l.all(e, e.zz > 0)", "undefined field 'zz'"),
    ("self.m['k'].w == 1", "undefined field 'w'"),
    ("self = 42", "ERROR: <input>:1:6: Syntax error: token recognition error at: '= '"),
    ("self.x > '1'", "found no matching overload for '_>_' applied to '(int, string)'"),
    ("self.n == 3", "found no matching overload for '_==_' applied to '(double, int)'"),
    ("self.x > 1.5 && self.z", "undefined field 'z'"),
    ("foo(self.x)", "undeclared reference to 'foo' (in container '')"),
    (
        "1 == other.a.b",
        "ERROR: <input>:1:6: undeclared reference to 'other' (in container '')\n | 1 == other.a.b\n | .....^",
    ),
    ("other == 1", "undeclared reference to 'other' (in container '')"),
    ("['a'].sum() + quantity('1')", "found no matching overload for '_+_'"),
)
FAILS = (
    ("self.open.y == 1", "no such key: open"),
    ("self.l[7].q == 1", "index out of bounds: 7"),
    ("self.x / 0 == 1", "division by zero"),
    ("self.m['nope'].v == 1", "no such key: nope"),
    ("quantity('x') == quantity('1')", "quantities must match the regular expression"),
    ("[1].map(x, dyn(x) + 'a') == []", "no such overload: _+_(int64, string)"),
)


@pytest.fixture(scope="module")
def checker() -> Checker:
    declarations = Declarations(custom=True)
    of = declarations.type_of(NODE)
    return Checker(declarations, {"self": of, "oldSelf": of})


def test_expressions_that_hold(checker: Checker) -> None:
    bound = Bound({"self": cel_value(VALUE, NODE)})
    for expression in TRUE.strip().splitlines():
        checker.check(expression.strip())
        assert program(expression.strip()).evaluate(bound) is True, expression


def test_names_that_protobuf_finds_too_much_alike() -> None:
    """Fields and the entries of maps share names in a message: such maps are checked at run time only."""
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    named = dict.fromkeys(("foo_bar", "fooBar", "one"), texts) | {
        "OneEntry": {"type": "string"},
        "_": {"type": "string"},
    }
    declarations = Declarations(custom=True)
    of = declarations.type_of(compile_structural({"type": "object", "properties": named}))
    checker = Checker(declarations, {"self": of})
    assert checker.check("self.foo_bar['a'] == self.fooBar['b'] && self.one['c'] == self.OneEntry + self._") == "BOOL"


def test_expressions_that_do_not_compile(checker: Checker) -> None:
    for expression, said in REFUSED:
        with pytest.raises(CompileError) as caught:
            checker.check(expression)
        assert said in str(caught.value), (expression, str(caught.value))
        assert "*error*" not in str(caught.value), "one finding is not told twice"


def test_evaluations_that_fail() -> None:
    bound = Bound({"self": cel_value({name: item for name, item in VALUE.items() if name != "open"}, NODE)})
    for expression, said in FAILS:
        with pytest.raises(EvaluationError) as caught:
            program(expression).evaluate(bound)
        assert said in str(caught.value), (expression, str(caught.value))
        assert not caught.value.exceeded


def test_an_evaluation_is_bounded() -> None:
    bound = Bound({"self": list(range(200))})
    with pytest.raises(EvaluationError, match="actual cost limit exceeded") as caught:
        program("self.all(x, self.all(y, x + y >= 0))").evaluate(bound)
    assert caught.value.exceeded


def test_names_are_escaped() -> None:
    found = {name: escape(name) for name in ("a", "in", "a.b", "a/b-c", "a__b", "0a", "ä")}
    assert found == {
        "a": "a", "in": "__in__", "a.b": "a__dot__b", "a/b-c": "a__slash__b__dash__c",
        "a__b": "a__underscores__b", "0a": None, "ä": None,
    }  # fmt: skip
