"""What a row says of a kind, and what that makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kproxy.api.fielderror import FieldError, invalid
from kproxy.api.validation.names import check_dns_subdomain
from kproxy.apiserver.errors import Json
from kproxy.apiserver.kinds.field_rules import Rules, defaults, rules, set_defaults
from kproxy.apiserver.kinds.strategy import STATUS, Context, Strategy

Errors = Iterable[FieldError]
_ELSEWHERE: Final = {
    "apiextensions.k8s.io": "apiextensions-apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "kube-aggregator.pkg.apis.apiregistration",
}
"""Groups whose types are not in k8s.io/api."""


ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
STATUS_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource: its name, the kind it speaks, and its verbs."""

    name: str
    kind: str
    verbs: tuple[str, ...] = STATUS_VERBS
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind.

    `parts` are its subresources beside status and scale; `fields` what it is selected by, `labels` other names of these
    in a selector; `strategy` is for what a row cannot say, the rest is for kinds that have none:

    `status` is what its status starts as, None if it has none; `generation` the fields whose change counts; `fixed` the
    fields that never change; `complete` sets the defaults that depend on other fields, `begin` what only a new object
    gets, `errors` says what a table cannot; `qualified_finalizers`, `orphans` and `create_on_update` are those of
    Strategy; `unenforced` is warned of at each write.
    """

    group: str
    kind: str
    plural: str
    version: str = "v1"
    short: str = ""
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = ALL_VERBS
    scale: bool = False
    parts: tuple[Subresource, ...] = ()
    fields: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    table: str = ""
    """The table that its objects are stored in, if another kind's."""
    deprecation: str = ""
    strategy: Callable[[], Strategy] | None = None
    status: Json | None = None
    generation: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    defaults: str = ""
    rules: str = ""
    complete: Callable[[Json], None] | None = None
    begin: Callable[[Json, Context], None] | None = None
    errors: Callable[[Json], Errors] | None = None
    qualified_finalizers: bool = True
    check_name: Callable[[str], tuple[str, ...]] = check_dns_subdomain
    unenforced: str = ""
    orphans: bool = False
    create_on_update: bool = False

    @property
    def schema(self) -> str:
        """The name of its schema."""
        if self.group in _ELSEWHERE:
            return f"io.k8s.{_ELSEWHERE[self.group]}.{self.version}.{self.kind}"
        return f"io.k8s.api.{self.group.partition('.')[0] or 'core'}.{self.version}.{self.kind}"


class StoredStrategy(Strategy):
    """What a row says."""

    row: Kind
    tree: Rules

    def check_name(self, name: str) -> tuple[str, ...]:
        return self.row.check_name(name)

    def default(self, value: Json) -> None:
        set_defaults(value, defaults(self.row.defaults))
        if self.row.complete is not None:
            self.row.complete(value)

    def prepare_create(self, value: Json, context: Context) -> None:
        if self.row.status is not None:
            value["status"] = dict(self.row.status)
        if self.row.begin is not None:
            self.row.begin(value, context)

    def prepare_update(self, value: Json, old: Json, context: Context) -> None:
        if self.row.status is not None:
            value["status"] = old.get("status") or dict(self.row.status)

    def generation_of(self, value: Json) -> Any:
        return [value.get(name) for name in self.row.generation]

    def validate(self, value: Json) -> list[FieldError]:
        found = self.tree.errors(value, "")
        return found + list(self.row.errors(value)) if self.row.errors is not None else found

    def validate_update(self, value: Json, old: Json) -> list[FieldError]:
        return [
            invalid(path, _at(value, path), "field is immutable")
            for path in self.row.fixed
            if _at(value, path) != _at(old, path)
        ]

    def warnings(self, value: Json, old: Json | None) -> list[str]:
        return [self.row.unenforced] if self.row.unenforced else []


def strategy_of(row: Kind) -> Strategy:
    """What a kind does beyond being stored."""
    if row.strategy is not None:
        return row.strategy()
    resets = {"spec_resets": (STATUS,)} if row.status is not None else {}
    members = {
        "create_on_update": row.create_on_update,
        "orphans": row.orphans,
        "qualified_finalizers": row.qualified_finalizers,
        "row": row,
        "tree": rules(row.rules),
        "has_generation": bool(row.generation),
        **resets,
    }
    made: Strategy = type(f"{row.kind}Strategy", (StoredStrategy,), members)()
    return made


def _at(value: Json, path: str) -> Any:
    item: Any = value
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item
