"""An nft process that has read its script before its turn, and carries it out when it is told to.

Of a sequence of transactions each is a process: it starts, parses, and then reads and writes the table, at which the
kernel spends most of the time, and sleeps at the end of each until no processor uses what was (synchronize_rcu). What
comes before nft looks at the table can be done meanwhile for the next one: its script comes through a pipe, whose end
is written when its turn has come. nft parses all of its input before it does anything, and without that end the input
is no valid script, so that a process which loses this one does nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from typing import Final

from kproxy.linux.namespace import Namespace
from kproxy.linux.process import ERRORS, Finished, child_environment, took_too_long

# A variable of the script, which nft uses for nothing.
_BEGUN: Final = b"define complete ="
_END: Final = b" 1\n"


class PreparsedNft:
    """One process. As a context manager it is ended, if it is still there, at the end."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: int) -> None:
        self._process = process
        self._pipe: int | None = pipe

    @classmethod
    def start(cls, namespace: Namespace, nft: str, script: str) -> PreparsedNft | None:
        """Starts nft; None if it cannot be given the script so: none of this is needed to carry it out."""
        data = script.encode(errors=ERRORS) + _BEGUN
        reading, writing = os.pipe()
        try:
            # All of it is in the pipe at once, so that nobody waits for nft to read it.
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, len(data) + len(_END))
            os.write(writing, data)
            process = namespace.call(
                lambda: subprocess.Popen(
                    [nft, "-f", f"/proc/self/fd/{reading}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=child_environment(),
                    process_group=0,
                    pass_fds=(reading,),
                )
            )
        except OSError:
            os.close(writing)
            return None
        finally:
            os.close(reading)
        return cls(process, writing)

    def go_on(self) -> None:
        """Lets it carry out the script."""
        if self._pipe is not None:
            # If it has ended, `finish` tells how.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, _END)
        self.close()

    def finish(self, timeout: float) -> Finished:
        """Waits for the end of a process that was told to go on.

        Raises:
            ToolFailedError: it took longer than `timeout` seconds.
        """
        try:
            _, stderr = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise took_too_long(error.cmd[0], timeout) from error
        return Finished(self._process.returncode, "", stderr.decode(errors=ERRORS))

    def __enter__(self) -> PreparsedNft:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()
        self.close()

    def close(self) -> None:
        """Takes its input away, which ends it unless it was told to go on."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)
