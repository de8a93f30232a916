"""What `kproxy diff` compares: the two sides as the user names them, read into rule sets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import structs

from kproxy.api import KubeProxyConfiguration, Manifests
from kproxy.cli.objects import ReadObjects, Reads, RenderChoices
from kproxy.cli.output import report_note, working
from kproxy.cli.sources import Sources, read_rules
from kproxy.cluster.completeness import remark_no_config
from kproxy.cluster.evidence.manifests import families_of
from kproxy.cluster.evidence.opened import opened_side
from kproxy.cluster.evidence.unseen import NOTHING, Assumed, Unseen
from kproxy.cluster.rendered import RenderedNode
from kproxy.cluster.rules import HostRules, RuleFile
from kproxy.cluster.sources import Kind, SourceName, read_name
from kproxy.dataplane.model.pipeline import evaluated_tables
from kproxy.dataplane.symbolic.host_rules import SideRules
from kproxy.errors import InputError
from kproxy.netfilter import Family
from kproxy.netfilter.nftables.ruleset import NftRuleset
from kproxy.render import Target
from kproxy.words import listed

if TYPE_CHECKING:
    from kproxy.cluster.snapshot.files import Files
    from kproxy.explorer.sources.source import SourceState

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Choices:
    """What options say about a side; `common` what they say about sources. Sides with the same `common.reads` read what
    both name once. `as_given`: kube-proxy's configuration is what options say, its defaults where they say nothing."""

    how: RenderChoices = field(default_factory=RenderChoices)
    common: Sources = field(default_factory=lambda: Sources((), reads=Reads()))
    without: tuple[str, ...] = ()
    assumed: Assumed = NOTHING
    as_given: bool = False


class SideInput:
    """One side as the user names it.

    Attributes:
        families: those of its rules; of what is rendered, those of the cluster's Services; none if nothing tells.
        mode: the proxy mode of what was rendered; "" of other rules, and before `rules` is called.

    Raises:
        InputError: it cannot be read, holds no rules, or holds rules that no kernel would take.
        LinuxError: a namespace cannot be read.
    """

    def __init__(self, text: str, choices: Choices) -> None:
        self._name = read_name(text)
        self.label = " ".join((self._name.label, *(f"without {each}" for each in choices.without)))
        self._choices = choices
        self._sources = replace(choices.common, names=(self._name,), without=choices.without)
        self._files: HostRules | None = None
        self._held: tuple[Files, str] | None = None
        self._taken: KubeProxyConfiguration | None = None
        self.mode = ""
        if self._name.kind is Kind.RULES:
            self._files = read_rules(self._name.names, choices.assumed)
        elif not self._name.is_rendered:
            held = self._node_of_snapshot()
            self._held = None if self._name.kind is Kind.NETNS else held
            self._files = _read_snapshot(self._name, *held, choices.assumed)
        for sentence in () if self._files is None else self._files.assumptions():
            report_note(f"{self.label}: {sentence}")

    @cached_property
    def families(self) -> frozenset[Family]:
        if self._files is not None:
            return _families(self._files)
        services = (each for each in self._read.cluster.services if each.spec.cluster_ip != "None")
        return frozenset(family for each in services for family in families_of(each))

    @property
    def told(self) -> frozenset[Family]:
        """The families of rules that were read, if they tell."""
        return frozenset() if self._files is None else self.families

    def has_file_of(self, family: Family) -> bool:
        """Whether the side has a file of a family's rules alone."""
        return self._files is not None and self._files.has_file_of(family)

    def unseen_rules(self, family: Family) -> tuple[Unseen, ...]:
        """A family's rules where the side is files that somebody gathered, and none of them is of that family."""
        if self._files is None or self._name.kind is Kind.NETNS or family in self.families:
            return ()
        if self._held is not None:
            from kproxy.cluster.snapshot.host import HostFacts

            if HostFacts(*self._held).knows_rules(family):
                return ()
        other = next(each for each in Family if each is not family)
        why = f"there is no file of these rules, and the other side has some (-{other.version} leaves them out)"
        found = (self._files.no_file_of(family, why),)
        return self._choices.assumed.left(found) if self.families else found

    def usual_family(self) -> Family:
        """The family of a side that can be read for either, if the other side does not tell."""
        if self._files is not None:
            return Family.IPV4
        return self._target.primary_family(self._config)

    def cluster(self) -> tuple[SourceState, str] | None:
        """What a page shows a map of, and the node; None of rules that stand alone, or without some of the objects."""
        from kproxy.cluster.snapshot.cluster import Cluster
        from kproxy.explorer.export.commands import rendered_state
        from kproxy.explorer.sources.source import SourceState

        if self._held is not None:
            files, node = self._held
            cluster = Cluster(files)
            cluster.label = self.label
            return SourceState(self.label, cluster), node
        if self._files is not None or self._choices.without:
            return None
        objects = self._sources.with_pods(self._read.raw)
        known = rendered_state(self.label, objects, self._config, self._choices.how.features)
        return known, self._target.node_name

    def unseen(self, family: Family) -> tuple[Unseen, ...]:
        """What was not seen of the rules that packets of a family meet. Raises InputError: they cannot be read."""
        if self._files is not None:
            return self._files.unseen_by_side(family)
        return self._rendered.unseen(family)

    @cached_property
    def _rendered(self) -> RenderedNode:
        """Of a side that is rendered: the node's rules, with the configuration that `take_config_of` left."""
        read = replace(self._read, config=self._config)
        return read.on_node(self.label, self._target, self._choices.how.features, self._choices.assumed)

    def rules(self, family: Family, same: Collection[tuple[str, str]] = ()) -> SideRules:
        """The rules that packets of a family meet, with rules that leave open what was not seen.

        Args:
            same: unseen things (`Unseen.thing`) that the other side lacks as well: taken to be the same on both.

        Raises:
            InputError: there are none, or they cannot be read.
        """
        if self._files is not None:
            return opened_side(self._files.side(family), family, self.unseen(family), same)
        self.mode = self._config.mode
        with working(f"rendering {self._name.label}"):
            return self._rendered.rules(family, same)

    def take_config_of(self, other: SideInput) -> None:
        """Where nothing tells the configuration of a rendered side's kube-proxy, it is taken to be the other side's:
        what a snapshot, manifests or rules tell of it. What it alone would make is then no difference.

        Raises:
            InputError: that configuration cannot be used.
        """
        if self._files is not None or self._read.config_known:
            return
        cluster = self._read.cluster
        found = None if self._choices.as_given else other._told_config(cluster, self._target.node_name)
        if found is None:
            for remark in remark_no_config(cluster, self._read.raw):
                report_note(remark)
        else:
            self._taken = structs.replace(found, mode=self._choices.how.mode or found.mode, hostname_override="")
            report_note(f"{self.label}: no kube-proxy configuration; it is taken to be that of {other.label}")

    def _told_config(self, cluster: Manifests, node: str) -> KubeProxyConfiguration | None:
        if self._held is not None:
            # As for what its objects render.
            choices = Choices(common=Sources((), reads=self._choices.common.reads))
            return SideInput(f"{Kind.MANIFESTS}:{self._name.text}", choices)._told_config(cluster, node)
        if self._files is None:
            return self._config if self._read.config_known else None
        from kproxy.cluster.snapshot.cluster import known_config
        from kproxy.cluster.snapshot.files import MemoryFiles

        names = {each.label: _file_of_snapshot(each) for each in self._files.files}
        texts = {f"nodes/{node}/{names[each.label]}": each.text.encode() for each in self._files.files}
        return known_config(MemoryFiles(self.label, texts), (), cluster.nodes, node, report_note)

    def _node_of_snapshot(self) -> tuple[Files, str]:
        """The files of a snapshot or a lab, and the name of the node that is meant. Raises KproxyError."""
        from kproxy.cluster.snapshot.cluster import host_names

        (path,), node, reads = self._name.names, self._name.node, self._choices.common.reads or Reads()
        if self._name.kind is Kind.SNAPSHOT:
            files = reads.snapshot(path)
        else:
            files = reads.live(self._name, self._choices.common.gather)
        assert files is not None
        names = host_names(files)
        if not node and len(names) == 1:
            node = names[0]
        if node not in names:
            there = f"there is {listed(names, _SHOWN)}" if names else "it has none"
            asked = f"the name of a node expected, as in {self._name.text}@NODE"
            raise InputError(f"{files.label}: {f'no files of node {node}' if node else asked}: {there}")
        return files, node

    @property
    def _config(self) -> KubeProxyConfiguration:
        return self._taken or self._read.config

    @property
    def _target(self) -> Target:
        return self._read.target(self._name.node or None)

    @cached_property
    def _read(self) -> ReadObjects:
        """Of a side that is rendered: the configuration and the objects."""
        return self._sources.read(self._choices.how, remark_config=False)


def _families(files: HostRules) -> frozenset[Family]:
    """The families that rules are for, none if they do not tell."""
    if any(ruleset.family is None for ruleset in files.rulesets):
        return frozenset()
    found = {ruleset.family for ruleset in files.rulesets}
    native = () if files.nftables is None else files.nftables.tables
    for family in Family:
        if any(True for _ in evaluated_tables(NftRuleset(native), family)):
            found.add(family)
    return frozenset(family for family in found if family is not None)


def _file_of_snapshot(file: RuleFile) -> str:
    """What a snapshot calls a file of rules."""
    if file.iptables is None:
        return "nft"
    return "ip6tables-save" if file.iptables.ruleset.family is Family.IPV6 else "iptables-save"


def _read_snapshot(source: SourceName, files: Files, node: str, assumed: Assumed) -> HostRules:
    """The rules that a node of a snapshot had. Raises InputError."""
    from kproxy.cluster.snapshot.host import HostFacts

    with working(f"reading {files.label}"):
        found = HostFacts(files, node, assumed=assumed).host_rules
    if found is None and source.kind is Kind.NETNS:
        raise InputError(f"{source.label}: no rules")
    if found is None:
        objects = f"{Kind.MANIFESTS}:{source.names[0]}@{node}"
        asked = f"; those that kube-proxy would program there are {objects}" if source.kind is Kind.SNAPSHOT else ""
        raise InputError(f"{files.label}: no rules of node {node}{asked}")
    return found
