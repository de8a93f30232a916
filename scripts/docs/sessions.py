"""Writes the recorded terminal sessions of the documentation, as SVG: docs/pictures/session-*.svg.

The commands are run on a terminal of 96 columns in a copy of docs/examples. The pictures load no fonts, so looking at
one asks nobody for anything.

usage: sessions.py [DIRECTORY]
"""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
WIDTH = 96
SESSIONS = {
    "trace": (
        "kproxy trace -f shop.yaml --config kube-proxy.yaml --node worker-1 --from pod/shop/cart-1 --to svc/shop/web",
        24,
    ),
    "audit": (
        "mkdir -p snap/objects snap/nodes/worker-1/kube-proxy && cp shop.yaml snap/objects/ &&\n"
        "  cp kube-proxy.yaml snap/nodes/worker-1/kube-proxy/configz &&\n"
        "  cp worker-1.save snap/nodes/worker-1/iptables-save && kproxy audit snap",
        33,
    ),
}
"""By the picture's name: the command, and how many lines of what it prints are shown."""

FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
assert "http" not in FORMAT.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")


def printed(command: str, where: Path) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(where), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=where, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    output = b""
    try:
        while part := os.read(ours, 65536):
            output += part
    except OSError:  # how Linux says that nobody has the terminal any more
        pass
    os.close(ours)
    process.wait()
    return output.decode().replace("\r\n", "\n")


def picture(name: str, where: Path) -> str:
    command, most = SESSIONS[name]
    lines = printed(command, where).split("\n")
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(Text("$ " + command, style="bold"))
        console.print(Text.from_ansi("\n".join([*lines[:most], "..."] if len(lines) > most else lines)))
    return console.export_svg(title="kproxy", code_format=FORMAT, unique_id=f"session-{name}")


def text_of(svg: str) -> list[str]:
    """The lines that a picture shows."""
    rows: dict[str, list[tuple[float, str]]] = {}
    pattern = r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>'
    for x, y, text in re.findall(pattern, svg.partition('clip-path="url(#')[2]):
        rows.setdefault(y, []).append((float(x), html.unescape(text).replace("\xa0", " ")))
    return [
        "".join(text for _, text in sorted(row)).rstrip()
        for _, row in sorted(rows.items(), key=lambda at: float(at[0]))
    ]


def main(directory: Path) -> None:
    for name in SESSIONS:
        with tempfile.TemporaryDirectory() as work:
            where = Path(work) / "examples"
            shutil.copytree(ROOT / "docs" / "examples", where)
            (directory / f"session-{name}.svg").write_text(picture(name, where))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures")
