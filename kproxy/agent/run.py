"""The agent: threads, signals and the order in which things start and end.

    main thread      starts everything, then waits for signals, a changed configuration file, or the end of --once
    informers        three or four threads that list and watch, one each to hand on what they saw; or one for files
    IPv4, IPv6       a thread each, which syncs

Looking at the host takes as long as listing a cluster, so both happen at once. Python's garbage collection waits until
the first sync is done, and then leaves alone what has come to stay: that keeps start-up short and single changes
steady. It does not wait for long: a family that cannot be programmed, or an API server that is away, must not make
memory grow.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from kproxy.agent.config.options import Settings
from kproxy.agent.log import event
from kproxy.agent.proxy.host import (
    clean_other_mode,
    close_host,
    prepare_host,
    set_up_host,
)
from kproxy.agent.proxy.node import MetaProxier, NodeFamily
from kproxy.agent.proxy.observer import SyncObserver
from kproxy.agent.proxy.proxier import FamilyProxier
from kproxy.agent.proxy.runner import FIRST_RETRY, LONGEST_RETRY, BoundedFrequencyRunner
from kproxy.agent.sources.apiserver import MeteredHttpClient, RequestLog, Source
from kproxy.agent.sources.files import FileSnapshot, FileSource, FileWatch
from kproxy.api import Manifests
from kproxy.api.kubeproxyconfig.types import MODE_NFTABLES
from kproxy.linux.errors import LockHeldError, ToolFailedError, UnreadableDumpError, is_lock_held
from kproxy.linux.sync.backend import Backend, Host
from kproxy.services import ServiceState

TICK: Final = 0.5
"""Seconds between looks at the configuration file, and at whether --once is done."""

WAITING: Final = 10.0
"""Seconds between lines that say what is waited for."""

START_UP: Final = 15.0
"""Seconds after which garbage collection goes on whether or not everything was synced."""

PERSEVERANCE: Final = 10.0
"""Seconds of failed syncs after which --once gives up: iptables that fails once, or is locked, shall not end it."""

ENDING: Final = 30.0
"""Seconds that a sync under way at the end may take."""


class StopEvent:
    """As `threading.Event`, for one thread that waits, and a signal handler may set it: once set, it stays so.

    A handler runs in the main thread, between any two of its instructions. `threading.Event` has a lock that `wait`
    holds for moments; a handler that comes in such a moment and calls `set` waits for that lock for ever. `put` of a
    SimpleQueue may be called there, as Python's documentation says.
    """

    def __init__(self) -> None:
        self._set = False
        self._woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._woken.put(None)

    def wait(self, seconds: float) -> bool:
        """Until it is set, so many seconds at most; whether it is."""
        if not self._set:
            with contextlib.suppress(queue.Empty):
                self._woken.get(timeout=seconds)
        return self._set


class Agent:
    """`kproxy run`. `first` is what the files of `settings.filenames` hold; None watches an API server.

    `snapshot` is how those files looked before they were read, and `config_file` has what the configuration file held
    then, so no change in between is missed.
    """

    def __init__(
        self,
        settings: Settings,
        first: Manifests | None = None,
        observe: Callable[[Agent], contextlib.AbstractContextManager[SyncObserver]] | None = None,
        snapshot: FileSnapshot | None = None,
        config_file: FileWatch | None = None,
    ) -> None:
        """Args: observe: makes the observer of syncs, which serves what it saw while its context is open."""
        self.settings = settings
        self.meta_proxier = MetaProxier(settings.config, settings.node_name)
        self.members: tuple[NodeFamily, ...] = ()
        self.host: Host | None = None
        # Why the host cannot be programmed yet.
        self.trouble = ""
        self.requests = RequestLog()
        self._first = first
        self._snapshot = snapshot
        self._config_file = config_file
        self._observe = observe
        self._stop = StopEvent()
        self._reason = ""
        self._exit_code = 0
        self._source: Source | None = None
        # When, in seconds since the start, --once first saw the failure that lasts; None while nothing fails.
        self._failing_since: float | None = None

    def run(self) -> int:
        """Runs until a signal, or with --once until the rules are there. Returns the exit code.

        Raises:
            KproxyError: it cannot start: no way to the API server is configured, the host cannot be programmed.
        """
        with _signals(self._signalled), _tuned_process():
            # First of all, so that the cluster is listed while everything else is imported and looked at.
            source = self._start_source()
            try:
                with self._observing() as observer:
                    self._sync_until_stopped(observer, self._config_file)
            finally:
                source.stop()
        return self._exit_code

    def _sync_until_stopped(self, observer: SyncObserver | None, config: FileWatch | None) -> None:
        threads: list[threading.Thread] = []
        try:
            threads = self._start_proxiers(observer)
            self._wait(config)
        finally:
            event("ending", level=logging.ERROR if self._exit_code == 1 else logging.INFO, reason=self._reason)
            self._end(threads)

    def stop(self, reason: str, exit_code: int = 0) -> None:
        """Ends `run`; the rules stay."""
        self._reason, self._exit_code = reason, exit_code
        self._stop.set()

    @contextlib.contextmanager
    def _observing(self) -> Iterator[SyncObserver | None]:
        if self._observe is None:
            yield None
        else:
            with self._observe(self) as observer:
                yield observer

    def _start_source(self) -> Source:
        settings = self.settings
        if self._first is not None:
            self._source = FileSource(
                settings.filenames,
                settings.node_name,
                self.meta_proxier,
                self.meta_proxier.source_synced,
                self._first,
                self._snapshot,
            )
        else:
            self._source = _api_source(settings, self.meta_proxier, self.requests)
        self._source.start()
        return self._source

    def _start_proxiers(self, observer: SyncObserver | None) -> list[threading.Thread]:
        settings = self.settings
        set_up_host(settings.config, settings.netns)
        self.host = self._prepare_host()
        if self.host is None:
            return []
        _tell_host(self.host, settings)
        for note in self.host.notes:
            event("note", level=logging.WARNING, note=note)
        self.members = tuple(NodeFamily(family, self._proxier(family, observer)) for family in self.host.families)
        self.meta_proxier.attach(self.members)
        threads = [
            threading.Thread(target=member.proxier.run, name=member.host.family.value, daemon=True)
            for member in self.members
        ]
        for thread in threads:
            thread.start()
        return threads

    def _prepare_host(self) -> Host | None:
        """Finds out what the host can do, again while iptables is locked or fails; None if it was stopped meanwhile."""
        settings = self.settings
        begun = time.monotonic()
        delay = FIRST_RETRY
        while not self._stop.is_set():
            try:
                host = prepare_host(
                    settings.config.mode,
                    settings.netns,
                    settings.families,
                    settings.variant,
                    settings.features,
                    settings.lock_wait,
                )
            except (LockHeldError, ToolFailedError) as error:
                if isinstance(error, UnreadableDumpError):
                    raise
                if settings.once and settings.timeout and time.monotonic() - begun >= PERSEVERANCE:
                    raise
                gc.enable()  # this may last, and what the sources bring is kept meanwhile
                self.trouble = str(error)
                event("the host cannot be programmed yet", level=logging.ERROR, error=str(error), retryIn=delay)
                self._stop.wait(delay)
                # Who waited for the lock in vain has lost no processor time, and goes on waiting.
                delay = FIRST_RETRY if is_lock_held(error) else min(2 * delay, LONGEST_RETRY)
            else:
                self.trouble = ""
                return host
        return None

    def _proxier(self, family: Backend, observer: SyncObserver | None) -> FamilyProxier:
        settings = self.settings
        options = family.options(settings.config, self.meta_proxier.target, self.meta_proxier.service_cidrs)
        state = ServiceState(family.family, options.node_name)
        syncer = family.syncer(state, options)
        runner = BoundedFrequencyRunner(settings.min_sync_period, settings.sync_period, random.random)
        clean = clean_other_mode(settings.config.mode, family.namespace, family.family, settings.lock_wait)
        return FamilyProxier(family.family, syncer, syncer.fingerprint, runner, time.monotonic, observer, clean)

    def _wait(self, config: FileWatch | None) -> None:
        begun = said = refreshed = time.monotonic()
        settled = False
        while not self._stop.wait(TICK if settled else TICK / 10):
            now = time.monotonic()
            synced = all(member.proxier.has_synced for member in self.members)
            if not settled and (synced or now - begun >= START_UP):
                settled = True
                _settle()
            if self.settings.once and self._once_done(now - begun):
                return
            if config is not None and config.changed():
                # As kube-proxy: whatever started it starts it again, with the new configuration.
                self.stop(f"the configuration file {self.settings.config_path} has changed", 1)
                return
            if not synced and now - said >= WAITING:
                said = now
                self._say_waiting()
            if now - refreshed >= self.settings.sync_period:
                refreshed = now
                if self.settings.config.node_ports_on:
                    self.meta_proxier.refresh()

    def _once_done(self, seconds: float) -> bool:
        """Whether --once has come to its end, after so many seconds."""
        proxiers = [member.proxier for member in self.members]
        failing = any(proxier.failing for proxier in proxiers)
        if not failing:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = seconds
        if failing and self.settings.timeout and seconds - (self._failing_since or 0.0) >= PERSEVERANCE:
            self.stop("the rules could not be programmed", 1)
        elif not failing and all(proxier.has_synced for proxier in proxiers):
            left = any(proxier.other_mode_left for proxier in proxiers)
            self.stop(f"the rules are programmed{', those of the other mode are left' if left else ''}", int(left))
        elif self.settings.timeout and seconds >= self.settings.timeout:
            waiting = self._waiting_for() or "the kernel"
            self.stop(f"nothing was programmed within {self.settings.timeout:g} s; waited for {waiting}", 1)
        return self._stop.is_set()

    def unready(self) -> str:
        """Why no rules are kept yet, or "": health is red as long."""
        if self.trouble:
            return f"the host cannot be programmed yet: {self.trouble}"
        if self.members and all(member.proxier.has_synced for member in self.members):
            return ""
        waiting = self._waiting_for()
        return f"nothing is programmed yet, waiting for {waiting}" if waiting else ""

    def _waiting_for(self) -> str:
        waiting = self._source.describe_waiting() if self._source is not None else ""
        if not waiting and self.meta_proxier.waits_for_node:
            waiting = f"the pod CIDR of Node {self.settings.node_name}, for detect-local mode NodeCIDR"
        return waiting

    def _say_waiting(self) -> None:
        waiting = self._waiting_for()
        if waiting:
            event("nothing is programmed yet", level=logging.WARNING, waitingFor=waiting)

    def _end(self, threads: list[threading.Thread]) -> None:
        for member in self.members:
            member.proxier.stop()
        until = time.monotonic() + ENDING
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        if self.host is not None and not any(thread.is_alive() for thread in threads):
            close_host(self.host)

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        # kube-proxy has no handler for SIGHUP, so it ends it; whatever started it starts it again.
        # With --once, exit 0 says that the kernel holds the rules.
        done = bool(self.members) and all(member.proxier.has_synced for member in self.members)
        self.stop(name, 128 + number if number == signal.SIGHUP or (self.settings.once and not done) else 0)


def _api_source(settings: Settings, meta_proxier: MetaProxier, requests: RequestLog) -> Source:
    # Imported here: with files there is no need for it.
    from kproxy.agent.sources.apiserver import ApiSource
    from kproxy.client import RestClient
    from kproxy.client.config import ClientConfig, load_client_config

    path = settings.config.client_connection.kubeconfig or None
    if settings.master and path is None:
        config = ClientConfig(settings.master.rstrip("/"))
    else:
        config = load_client_config(path, settings.context or None)
        if settings.master:
            import dataclasses

            config = dataclasses.replace(config, server=settings.master.rstrip("/"))
    event("source", server=config.server, endpoints="Endpoints" if settings.use_endpoints else "EndpointSlices")
    client = RestClient(config)
    client.http = MeteredHttpClient(config, requests)
    return ApiSource(
        client,
        settings.node_name,
        meta_proxier,
        meta_proxier.source_synced,
        use_endpoints=settings.use_endpoints,
        service_cidrs=settings.config.mode == MODE_NFTABLES,
    )


def _tell_host(host: Host, settings: Settings) -> None:
    """What programs the rules, and why it is that."""
    where = settings.netns or "this machine"
    tools = ", ".join(family.tool for family in host.families)
    if host.choice is None:
        event("host", node=settings.node_name, where=where, mode=host.variant, nft=host.families[0].tool)
        return
    event("host", node=settings.node_name, where=where, variant=host.variant, because=host.reason, iptables=tools)


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handles SIGTERM, SIGINT and SIGHUP meanwhile; in any thread but the main one there are no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextlib.contextmanager
def _tuned_process() -> Iterator[None]:
    """No garbage collection until the first sync is done, and short waits for the interpreter's lock."""
    interval = sys.getswitchinterval()
    gc.disable()
    # By default a thread that has something to do may wait 5 ms for one that computes.
    sys.setswitchinterval(0.001)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.enable()
        gc.unfreeze()


def _settle() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()
