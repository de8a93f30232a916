"""What expressions are estimated to cost: the figures that Kubernetes' own tests expect (TestCostEstimation)."""

from __future__ import annotations

from typing import Any

import pytest

from kproxy.apiserver.cel.cost import estimate, identifiers, shape_of
from kproxy.apiserver.cel.engine import program
from kproxy.apiserver.crd.structural import compile_structural

NUMBER: Any = {"type": "number"}
EITHER: Any = {"x-kubernetes-int-or-string": True}


def text(most: int | None = None, form: str = "") -> Any:
    return {"type": "string"} | ({} if most is None else {"maxLength": most}) | ({"format": form} if form else {})


def array(of: Any, most: int | None = None) -> Any:
    return {"type": "array", "items": of} | ({} if most is None else {"maxItems": most})


def mapping(of: Any, most: int | None = None) -> Any:
    return {"type": "object", "additionalProperties": of} | ({} if most is None else {"maxProperties": most})


@pytest.mark.parametrize(
    ("schema", "expression", "cost"),
    [
        (array(NUMBER, 10), "self.all(x, self.all(y, true))", 352),
        (array(NUMBER, 10), "self.all(x, self.all(y, self.all(z, true)))", 3552),
        (text(10), "self.contains('test')", 5),
        (text(), "self.contains('test')", 314574),
        (text(15), "self.startsWith('test')", 2),
        (text(4), 'size(self + "hello") > size("hello")', 7),
        (text(), 'size(self + "hello") > size("hello")', 314578),
        (array(NUMBER, 5000), "self[1] == 0.0", 2),
        (array(text(), 8), "self[1] == self[1]", 314577),
        (text(50), 'self.matches("x")', 22),
        (text(), '"".matches("(((((((((())))))))))[0-9]")', 7),
        (text(100), 'self.matches("")', 1),
        (text(0), 'self == "x"', 1),
        (text(), 'self == "x"', 2),
        (array(NUMBER), "self.all(x, x == 0.0)", 6291454),
        (array(NUMBER, 3 * 1024 * 2048), "self.all(x, x == 0.0)", 25165826),
        (array(EITHER), "self.all(x, true)", 4718591),
        (array(text(form="duration")), "self.all(x, true)", 2359295),
        (array(text(form="date")), "self.all(x, true)", 725936),
        (array(text(form="date-time")), "self.all(x, true)", 428963),
        (mapping(NUMBER), "has(self.x)", 0),
        (mapping(EITHER), "self.all(x, true)", 1348169),
        (mapping(mapping(NUMBER)), "self.all(x, true)", 1179647),
        (mapping(array(NUMBER), 25), "self.all(x, true)", 77),
        (array(array(NUMBER)), "self[0][0] == -1.0", 3),
        (array(mapping(NUMBER)), "self[0].x > 2.0", 4),
        (text(), "self.find('[0-9]+') == ''", 629147),
        (text(10), "self.lowerAscii() == 'lower!'", 6),
        (mapping({"type": "integer"}), "oldSelf.size() == self.size()", 5),
    ],
)
def test_the_figures_of_kubernetes(schema: Any, expression: str, cost: int) -> None:
    shape = shape_of(compile_structural(schema))
    assert estimate(program(expression).tree, {"self": shape, "oldSelf": shape}) == cost


def test_names_that_an_expression_uses() -> None:
    tree = program("self.a.all(x, x == oldSelf.b) && {'a': foo}.b == [bar] && {}.c.has(d)").tree
    assert {"self", "oldSelf", "foo", "bar", "x", "d"} <= identifiers(tree)
