"""The `kproxy` command: one module per subcommand, imported only when it is called.

Exit codes, for all of them: 0 fine; 1 differences found, or the operation failed; 2 usage or bad input.
"""

from __future__ import annotations

import os
import sys

import click

from kproxy import __version__
from kproxy.cli import interrupts
from kproxy.cli.loading import COMPLETE, HELP_NAMES, LazyGroup, add_common_options, load_command
from kproxy.cli.output import report_error, report_usage
from kproxy.errors import KproxyError
from kproxy.extras import missing_extra

COMMANDS = {
    "render": "Render a node's iptables rules from manifests.",
    "golden": "Compare rendered rules with committed golden files.",
    "explain": "Explain what one Service becomes on a node.",
    "trace": "Trace a packet through a node's rules: where it goes, why, with which chance.",
    "diff": "Do two rule sets treat every packet alike? If not, show a packet that tells.",
    "migrate": "What changes for packets when kube-proxy's mode is switched, and what to do.",
    "explore": "Walk through a cluster in the browser: ask, break, compare.",
    "collect": "Gather what decides a cluster's Service traffic into one file.",
    "snapshot": "List what a snapshot holds, and what it lacks.",
    "audit": "Which Services are wrong on which nodes of a cluster, and why.",
    "apply": "Bring the kernel's rules to what the manifests say.",
    "drift": "Say how the kernel's rules differ from what the manifests say, and mend it.",
    "cleanup": "Remove every rule of kproxy and kube-proxy.",
    "run": "Keep a node's rules right: follow an API server, or manifests.",
    "apiserver": "Serve a small, durable Kubernetes API.",
    "overlay": "Join the pod networks of the nodes, by VXLAN or by routes.",
    "lab": "A cluster network on this machine: nodes, pods, Services, packets.",
    "completion": "Print the script that completes commands and flags in a shell.",
    "help": "Show the help of a command.",
    "version": "Show the version, and that of the kube-proxy whose rules are rendered.",
}


FOLDERS = frozenset({"audit", "trace", "diff", "migrate", "run", "lab"})
"""Commands of several modules: a folder each, in which `command` is the command itself."""

TOGETHER = {"cleanup": "apply", "snapshot": "collect", "version": "help", "completion": "help"}
"""Commands that are in another one's module, by their own names."""

EXTRAS = {
    "explore": "explore",
    "apply": "linux",
    "drift": "linux",
    "cleanup": "linux",
    "run": "agent",
    "apiserver": "apiserver",
    "overlay": "agent",
}
"""The extra of the package that a command needs as a whole (`kproxy lab`: in its folder). Of others, options may."""


def _load(name: str) -> click.Command:
    path = f"{name}.command" if name in FOLDERS else TOGETHER.get(name, name)
    return load_command(path, f"kproxy {name}", EXTRAS.get(name, ""), name if name in TOGETHER else "command")


@click.command(
    cls=LazyGroup, rows=COMMANDS, load=_load,
    context_settings={"help_option_names": HELP_NAMES, "max_content_width": 110},
)  # fmt: skip
@click.version_option(__version__, prog_name="kproxy")
def group() -> None:
    """A kube-proxy you can read, replay and interrogate.

    \b
    Examples:
      kproxy render cluster.yaml
      kproxy explain cluster.yaml --service shop/web
      kproxy trace node.save --from 10.244.0.9 --to web
      kproxy diff dump.txt cluster.yaml@worker-1
      kproxy audit snap/
      kproxy golden check
    """


add_common_options(group)


def main(*, plugin: bool = False) -> None:
    """Entry point: runs the command and turns every deliberate error into one message and an exit code.

    Args:
        plugin: whether kubectl called, as `kubectl kproxy ...`.
    """
    _mend_standard_streams()
    interrupts.install()
    if COMPLETE in os.environ:
        from kproxy.cli.help import install

        install()
    try:
        code = _run_as_plugin() if plugin else group.main(prog_name="kproxy", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        report_usage(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("kproxy: interrupted", err=True)
        code = 130
    except KproxyError as error:
        report_error(error)
        code = error.exit_code
    except BrokenPipeError:
        # The reader (head, say) has gone: end quietly.
        _discard_stdout()
        code = 1
    except OSError as error:
        # Commands wrap what they do with files, so this is a write to standard output.
        _discard_stdout()
        report_error(KproxyError(f"cannot write output: {error.strerror or error}"))
        code = 1
    except Exception as error:
        missing = missing_extra(error)
        code = missing.exit_code if missing else interrupts.exit_code()
        if missing:
            report_error(missing)
        elif code is None:
            raise
        else:
            click.echo("kproxy: interrupted", err=True)
    interrupts.let_go()
    sys.exit(code if isinstance(code, int) else 0)


def _run_as_plugin() -> object:
    from kproxy.cli.kubectl import run_plugin

    return run_plugin(group, COMMANDS, sys.argv[1:])


def _mend_standard_streams() -> None:
    """Gives a closed standard stream something to stand for it: reading finds nothing, writing fails."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # A descriptor opened for reading refuses writes, which is what a closed stdout should do.
            os.dup2(os.open(os.devnull, os.O_RDONLY if name != "stderr" else os.O_WRONLY), number)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115


def _discard_stdout() -> None:
    """Keeps the interpreter from reporting at exit what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
