"""Commands as they are imported: when they are used, with the extra of the package that they need; and as they are
declared: options that belong together are one argument."""

from __future__ import annotations

import functools
import gc
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import click

from kproxy.cli import interrupts
from kproxy.cli.output import choose_colour
from kproxy.extras import missing_extra, require

HELP_NAMES: Final = ("-h", "--help")

_PLAIN: Final = "\0"
"""Before an argument that is no option although it looks like one."""
COMPLETE: Final = "_KPROXY_COMPLETE"
"""The environment variable of a shell that asks for completions: click's convention."""


@functools.cache
def load_command(path: str, program: str, extra: str = "", attribute: str = "command") -> click.Command:
    """The command of a module of `kproxy.cli`; if it has an extra, it says before it begins what of it is missing.

    Raises:
        MissingExtraError: the module cannot be imported without an extra.
    """
    gc.disable()  # what modules define is no garbage: a tenth of the start would go into looking for some
    try:
        with interrupts.at_once():
            command = getattr(importlib.import_module(f"kproxy.cli.{path}"), attribute)
    except ModuleNotFoundError as error:
        raise missing_extra(error, program) or error from error
    finally:
        gc.enable()
    assert isinstance(command, click.Command)
    for each in (command.commands.values() if isinstance(command, click.Group) else ()) or (command,):
        if extra:
            each.make_context = _asking(each.make_context, extra, program)  # type: ignore[method-assign]
        add_common_options(each)
    return command


def gives(name: str, take: Callable[[dict[str, Any]], object], *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Adds options to a command, the first of them as the first of --help, and gives it as the argument `name` what
    they say: `take` takes their values out of those of all options, and makes one of them."""

    def add(function: Callable[..., object]) -> Any:
        @functools.wraps(function)
        def command(**values: Any) -> object:
            return function(**{name: take(values)}, **values)

        for option in reversed(options):
            command = option(command)
        return command

    return add


def add_common_options(command: click.Command) -> None:
    """Adds --color, which every command has, and what every command's parser does beyond click's."""
    command.params.append(_color_option())
    command.make_parser = _patient(command.make_parser)  # type: ignore[assignment,method-assign]


class SuggestingGroup(click.Group):
    """A group that names the commands that are spelled nearly as the one that it does not have."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args and args[0] not in self.list_commands(ctx) and args[0][:1] != "-":
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 2)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{meant}")
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """A group that imports a subcommand's module when the subcommand is used, so that start-up stays fast."""

    def __init__(self, *args: Any, rows: Mapping[str, str], load: Callable[[str], click.Command], **named: Any) -> None:
        """`rows` has a sentence for each subcommand, by its name; `load` imports one."""
        super().__init__(*args, **named)
        self._rows = rows
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load(cmd_name) if cmd_name in self._rows else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._rows.items()))


def _patient(make: Callable[[click.Context], Any]) -> Callable[[click.Context], Any]:
    """A command's parser that takes `-@NODE` for an argument, and suggests no option that --help does not have."""

    def make_parser(context: click.Context) -> Any:
        parser = make(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> tuple[dict[str, Any], list[str], list[click.Parameter]]:
            # click would take `-@NODE`, standard input of a node, for an option.
            args = [f"{_PLAIN}{each}" if each.startswith("-@") else each for each in args]
            try:
                options, rest, order = parse(args)
            except click.NoSuchOption as error:
                near = _near(error.option_name, context.command.get_params(context))
                raise click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx) from error
            options = {name: _plain(value) for name, value in options.items()}
            return options, rest, order

        parser.parse_args = parse_args
        return parser

    return make_parser


def _plain(value: Any) -> Any:
    """What the command line says, of an argument or of several."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return value.removeprefix(_PLAIN) if isinstance(value, str) else value


def _near(name: str, params: Iterable[click.Parameter]) -> list[str]:
    """The options that are spelled nearly as this one; those that --help does not have are none to suggest."""
    import difflib

    shown = (each for each in params if isinstance(each, click.Option) and not each.hidden)
    return difflib.get_close_matches(name, [text for each in shown for text in each.opts if text[:2] == "--"])


def _color_option() -> click.Option:
    return click.Option(
        ["--color"],
        type=click.Choice(["auto", "always", "never"]),
        is_eager=True,
        expose_value=False,
        callback=lambda _context, _parameter, when: choose_colour(when) if when else None,
        help="Colours. Default: auto, where output is a terminal and NO_COLOR is not set.",
    )


def _asking(make: Callable[..., click.Context], extra: str, program: str) -> Callable[..., click.Context]:
    """A command's reading of its arguments that says what of its extra is missing, before what is missing in them;
    `--help` and completion do without."""

    def make_context(*arguments: Any, resilient_parsing: bool = False, **named: Any) -> click.Context:
        try:
            context = make(*arguments, resilient_parsing=resilient_parsing, **named)
        except click.UsageError:
            require(extra, program)
            raise
        if not resilient_parsing:
            require(extra, program)
        return context

    return make_context
