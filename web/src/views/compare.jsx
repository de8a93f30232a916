// Two sides: another source (diff), the objects and what is programmed (drift), or both modes (migrate).

import { useMemo } from "preact/hooks";
import { embedded, holds, useAnswer } from "../api.js";
import { Findings, Undecided, Unlisted } from "../compare/findings.jsx";
import { FoundMap, onMap, useWays } from "../compare/foundmap.jsx";
import { GROUPS, gathered, headline, impossible, kindsOf, mergedNotes, podNames, sidesOf } from "../compare/gather.js";
import { Absent, Lanes, OfTheSwitch } from "../compare/lanes.jsx";
import { Busy, Later, Problem } from "../parts.jsx";
import { findingAt, href, placeOf } from "../route.js";
import { faultMarks, useAudited } from "../map/audited.js";
import { overlaid, withEndpoints } from "../map/shape.js";
import { count, plain } from "../words.js";

/** Services times nodes: more are compared when that is asked for. */
const FEW = 600;
/** Of so many letters a note stands above a map. */
const SHORT_NOTE = 50;
/** Notes that stand before what was found: the others are opened. */
const NOTES = 2;
const FEW_FAULTS = 3;
const AGAINST = "against";
/** Of more Services the map of what should be is not asked for: only ways are drawn. */
const FEW_SERVICES = 1000;

/** What can be compared here; `own`: whose drift, "" for the page's source: {kind, title, short: that for a phone, about, question, words of both sides}. */
function kinds(source, own) {
  const other = source.modes?.[0] === "nftables" ? "iptables" : "nftables";
  const found = [
    { kind: "drift", title: "Rules as they should be, and as they are", short: "Drift", about: "What kube-proxy would program, against the rules that the nodes have (kproxy drift)", question: own ? { kind: "drift", node: "", a: { source: own } } : { kind: "drift", node: "" }, words: ["should be", "is"] },
    { kind: "migrate", title: `Today, and in ${other} mode`, short: `Switch to ${other}`, about: `What changes for packets when kube-proxy is switched to ${other} mode, with rules as the objects ask for (kproxy migrate)`, question: { kind: "migrate", to: other, nodes: [] }, words: ["today", `in ${other} mode`] },
  ];
  if (source.against?.label) {
    const names = [source.label, source.against.label];
    const words = names[0] === names[1] ? ["first", "second"] : names;
    found.unshift({ kind: "diff", title: "Both sources", about: `${source.label} against ${source.against.label} (kproxy diff)`, question: { kind: "diff", a: {}, b: { source: "against" } }, words });
  }
  return found.filter((item) => source.compares?.includes(item.kind));
}

export function CompareView({ route, map: ownMap, source, revision }) {
  const { query } = route;
  // What takes long begins when it is asked for.
  const first = (source.services ?? 0) * Math.max(1, source.nodes ?? 1) <= FEW || source.against ? kinds(source, "")[0]?.kind : "";
  const kind = kinds(source, "").some((item) => item.kind === (query.kind ?? first)) ? (query.kind ?? first) : "";
  // Drift is of the page's source, or of the second one.
  const own = kind === "drift" && query.of === AGAINST && source.against ? AGAINST : "";
  const offered = kinds(source, own);
  const chosenKind = offered.find((item) => item.kind === kind);
  const { data, error, busy } = useAnswer(kind && "api/compare", chosenKind?.question, revision);
  const shown = data && (data.kind ?? kind) === kind ? data : null;
  const drift = offered.find((item) => item.kind === "drift");
  const theirs = useAnswer(own && `api/map?source=${own}`, undefined, revision);
  const map = useMemo(() => (own ? (theirs.data ? withEndpoints(theirs.data) : null) : ownMap), [own, theirs.data, ownMap]);
  const to = (changes) => href("compare", { ...query, ...changes });
  const words = chosenKind?.words ?? ["", ""];
  const notes = [...(shown?.remarks ?? []), ...(shown?.notes ?? [])];
  const cards = useMemo(() => (shown ? gathered(shown.findings ?? shown.report?.findings ?? [], { kind, asks: shown.asks, words }) : []), [shown, kind]);
  const ruledOut = useMemo(() => (shown?.report ? [...impossible(shown.report.findings), ...(shown.report.absent ?? [])] : []), [shown]);
  const undecided = shown?.undecided ?? shown?.report?.undecided ?? [];
  const sides = useMemo(() => sidesOf(words, shown), [shown, kind]);
  // Of one host alone there is nothing to draw a way on.
  const drawn = Boolean(cards.length && map && source.kind !== "rules");
  // Of a change of the mode all is seen first.
  const switched = kind === "migrate";
  const chosen = placeOf(query.finding, switched ? "" : "0");
  const overview = switched && cards.length > 0 && !(cards[Number(chosen)] && chosen !== "");
  const split = drawn && !overview;
  const whole = overview || (switched && !cards.length);
  // Both modes are as the objects ask for; what nodes have may be something else.
  const drifts = switched && map?.faults.size > 0 && drift ? <a href={to({ kind: "drift", finding: "" })}>drift</a> : null;
  const choose = (place) => to({ finding: findingAt(place) || (switched ? "" : "none") });
  const found = useWays(cards, split ? chosen : "", sides, map, revision);
  return (
    <section class={`view${split ? " split compared" : overview ? " switched" : ""}`}>
      <div class="main">
        <div class="bar-top">
          <h1>{source.fixed ? chosenKind?.about.replace(/ \(.*/, "") : "Compare"}</h1>
          {!source.fixed && (
            <nav class="tabs" aria-label="What is compared">
              <ul>{offered.map((item) => <li key={item.kind}><a class="tab" href={to({ kind: item.kind, finding: "", of: "" })} title={item.about} aria-current={item.kind === kind ? "true" : undefined}>{item.short ? <><span class="long">{item.title}</span><span class="short">{item.short}</span></> : item.title}</a></li>)}</ul>
            </nav>
          )}
          <Busy busy={busy && kind} words="Comparing all packets…" />
        </div>
        {chosenKind && (!source.fixed || (drawn && notes.length > 0)) && (
          <div class="about">
            {!source.fixed && <p>{own && <b>{source.against.label}: </b>}{chosenKind.about}{whole && drifts && <>. The nodes’ rules are not so now: {drifts}</>}</p>}
            {drawn && <Notes notes={mergedNotes(notes)} brief />}
          </div>
        )}
        {!kind && <p class="note">Choose what to compare. All packets are compared, not a sample; of many Services that takes a while.</p>}
        <Problem error={error} />
        {kind && shown && (
          <div class="said">
            <Verdict cards={cards} undecided={undecided} chosen={chosen} choose={switched ? choose : null} doubt={undecided.length > 0 || (kind === "drift" && map?.faults.size > 0)} alike={kind === "drift" ? <AsAsked audits={(embedded ? holds("audit") : source.can?.audit) && !own} lost={map?.faults.size > 0} /> : undefined} />
            {shown.report && <OldKernels kernels={shown.report.kernels ?? []} />}
            {shown.report && <Completeness report={shown.report} cards={cards} back={whole ? "" : choose("")} drifts={drifts} />}
          </div>
        )}
        {kind && shown && !drawn && <Notes notes={mergedNotes(notes)} />}
        {overview && <Lanes cards={cards} sides={sides} names={podNames(map)} map={map} choose={choose} />}
        {split && <ComparedMap map={map} sides={sides} revision={revision} cards={cards} chosen={chosen} choose={choose} found={found} own={own} audits={embedded ? holds("audit") : source.can?.audit} />}
        {kind === "drift" && shown && !cards.length && map && !own && source.kind !== "rules" && <AlikeMap map={map} source={source} revision={revision} />}
      </div>
      {kind && shown && (
        <div class="beside">
          {!drawn && !overview && cards.length > 1 && <Index cards={cards} />}
          {!overview && <Findings findings={cards} sides={sides} names={podNames(map)} total={map?.nodes.length} chosen={chosen} choose={drawn || switched ? choose : null} />}
          {whole && <Absent items={ruledOut} />}
          {whole && shown.report && <OfTheSwitch to={shown.report.to} />}
          <Unlisted items={shown.unlisted} />
          <Undecided items={undecided} hidden={shown.hidden} />
        </div>
      )}
    </section>
  );
}

/** What was found, in a line each, where cards have the whole width. */
function Index({ cards }) {
  const show = (place) => document.getElementById(`finding-${place + 1}`)?.scrollIntoView({ behavior: "smooth" });
  return (
    <ol class="found-index">
      {cards.slice(0, 30).map((card, place) => <li key={place}><button type="button" onClick={() => show(place)}><span class={`number ${card.tone}`}>{place + 1}</span> <span class={`found-mark ${card.tone}`}>{card.mark}</span> {card.title} <small>{card.culprit && <>{card.culprit} · </>}{kindsOf(card.parts, card.nodes)}</small></button></li>)}
    </ol>
  );
}

/** Faults on the map that no finding is about, as where both sides have a rule of another program: the Audit says which. They
 *  are those of one node's clients. */
function OtherFaults({ map, cards, audits }) {
  const told = new Set(cards.flatMap((card) => card.services));
  const faults = [...map.faults].filter(([id]) => !told.has(id));
  if (!faults.length || cards.some((card) => card.more)) return null;
  const names = faults.slice(0, FEW_FAULTS).map(([id, words]) => `${plain(id)} (${words})`).join(", ");
  const left = faults.length - FEW_FAULTS;
  return <p class="note" data-test="other-faults">For clients on {map.view}, and in no finding: {names}{left > 0 && ` and ${left} more`}.{audits && <> Both sides may have it; why: <a href={href("audit")}>Audit</a>.</>}</p>;
}

/** Of the second source there are Services' pages, and no Map. */
const ofTheirs = (id) => (id.startsWith("svc/") ? href(["service", ...id.slice(4).split("/")], { source: AGAINST }) : undefined);

/** No drift: what other programs' rules do is on both sides. */
const AsAsked = ({ audits, lost }) => <>kube-proxy’s rules do what the objects ask for{lost && <>, but packets are lost</>}. <small>Other programs’ rules are on both sides here{audits && <>: what they do to packets is in the <a href={href("audit")}>Audit</a></>}.</small></>;

const NOTHING = { ways: null };
const NO_CARDS = [];
const NO_TOUCH = new Set();

/** The map where nothing drifts; what the audit calls errors is marked, since rules of other programs may do them. */
function AlikeMap({ map, source, revision }) {
  const { audited } = useAudited(map, source, revision);
  const more = useMemo(() => faultMarks(audited, map), [audited, map]);
  return <FoundMap map={map} cards={NO_CARDS} chosen="" choose={() => ""} sides={NO_CARDS} found={NOTHING} touched={NO_TOUCH} more={more} hrefOf={onMap} label="Map with the audit's errors marked" />;
}

/** What was found, at a glance: of a switch of the mode by what there is to do, else by causes. */
export function Verdict({ cards, undecided, chosen = "", choose = null, alike = "Both sides treat every packet alike.", doubt = undecided.length > 0 }) {
  if (!cards.length) {
    return <p class={`outcome-line ${doubt ? "open" : ""}`} role="status" data-test="verdict">{undecided.length ? "No difference was found, but not everything could be decided." : alike}</p>;
  }
  if (cards.some((card) => card.advice.length)) {
    const groups = GROUPS.filter((group) => group.name !== "guess" && (group.name !== "after" || cards.some((card) => card.group === group.name)));
    return (
      <ul class="score" aria-label={`${count(cards.length, "difference")} for packets`} data-test="verdict">
        {groups.map((group) => <Score key={group.name} group={group} cards={cards} chosen={chosen} choose={choose} />)}
      </ul>
    );
  }
  const guessed = cards.filter((card) => card.assumed);
  const sure = cards.filter((card) => !card.assumed);
  return (
    <div class="verdicts" role="status" data-test="verdict">
      {sure.length > 0 && <p class={`outcome-line ${sure.some((card) => card.tone === "bad") ? "bad" : "changed"}`}>{headline(sure)}</p>}
      {guessed.length > 0 && <p class="outcome-line open">{sure.length ? "And perhaps " : "Perhaps "}{headline(guessed)}</p>}
    </div>
  );
}

/** How many there are of a group; it leads there. */
function Score({ group, cards, chosen, choose }) {
  const first = cards.findIndex((card) => card.group === group.name);
  const number = cards.filter((card) => card.group === group.name).length;
  const words = <><b>{number}</b> <span>{group.title}</span></>;
  if (first < 0 || !choose) return <li>{words}</li>;
  const section = (event) => {
    const found = document.getElementById(`group-${group.name}`);
    if (!found) return;
    event.preventDefault();
    found.scrollIntoView({ behavior: "smooth" });
  };
  return <li><a href={choose(String(first))} aria-current={cards[Number(chosen)]?.group === group.name && chosen !== "" ? "true" : undefined} onClick={section}>{words}</a></li>;
}

/** Nodes that cannot have the other mode at all. */
function OldKernels({ kernels }) {
  const old = kernels.filter((each) => !each.fits);
  if (!old.length) return null;
  const left = old.length - FEW_FAULTS;
  return <p class="problem" role="alert">{old.slice(0, FEW_FAULTS).map((each) => `${each.node} has Linux ${each.version}`).join(", ")}{left > 0 && `, ${left} more an old one`}: too old for nftables mode.</p>;
}

/** What the findings of migrate leave out, and what a node must have for the other mode: as the command says it; `back`: to all
 *  of them, as long as one is looked at. */
function Completeness({ report: { findings, undecided, needs = [], tried, services, nodes, kernels = [] }, cards, back, drifts }) {
  const whole = !undecided.length && findings.every((item) => item.reason !== "other") && cards.length > 0;
  const others = tried ? `; of those that meet other programs’ rules ${tried} were tried` : "";
  const complete = whole && `Nothing else changes: all packets were compared${others}.`;
  if (back) return <p class="counts" data-test="completeness">{cards.length > 0 && <a class="to-all" href={back}>‹ All {count(cards.length, "difference")}</a>}{complete}{drifts && <> Rules are not so now: {drifts}.</>}</p>;
  const of = [...new Set(cards.flatMap((card) => (card.services.length ? card.families : [])))];
  const fit = kernels.length > 0 && kernels.every((each) => each.fits);
  return (
    <ul class="prerequisites" data-test="completeness">
      <li>{count(services, "Service")} on {count(nodes.length, "node")}{of.length === 1 && `, all of ${of[0]}`}</li>
      {complete && <li class="ok">{complete}</li>}
      {needs.map((each, place) => <li key={each} class={place === 0 && fit && kernels.length === nodes.length ? "ok" : "open"}>Nodes need {each}: {place === 0 && fit ? (kernels.length === nodes.length ? "all have it" : `${kernels.length} have it, of others it is not known`) : "not known here"}</li>)}
    </ul>
  );
}

/** `brief`: above a map, which several or long notes would push down, their number stands for them until it is opened. */
function Notes({ notes, brief = false }) {
  const most = !brief ? NOTES : notes.length > 1 || notes[0]?.length > SHORT_NOTE ? 0 : 1;
  const list = (items) => items.map((item) => <li key={item}>{item}</li>);
  const left = notes.slice(most);
  return (
    <>
      {most > 0 && notes.length > 0 && <ul class="hints">{list(notes.slice(0, most))}</ul>}
      {left.length > 0 && <Later class="hints" summary={count(left.length, most ? "more note" : "note")}>{() => <ul class="hints">{list(left)}</ul>}</Later>}
    </>
  );
}

/** The map with what differs; both sides' chances are laid over one another as long as no finding is chosen. */
function ComparedMap({ map, sides, revision, cards, chosen, choose, found, own, audits }) {
  // The source whose map this is is one side; the other one's map shows what only it has.
  const [first, second] = sides.map((side) => (side.edits.length || side.source === own ? "" : side.source));
  const other = second || (map.services.length <= FEW_SERVICES ? first : "");
  const { data, error } = useAnswer(other && `api/map?source=${other}`, undefined, revision);
  const both = useMemo(() => {
    if (!other || !data) return null;
    const theirs = withEndpoints(data);
    const [before, after] = second ? [map, theirs] : [theirs, map];
    return { before, map: { ...overlaid(after, before), served: new Set([...before.served, ...after.served]) } };
  }, [map, other, data]);
  const open = Boolean(cards[Number(chosen)]) && chosen !== "";
  const drawn = both?.map ?? map;
  return (
    <>
      {!(open && (found.ways || found.busy)) && (
        <div class="map-tools">
          <p class="counts">{open ? `Marked: what finding ${Number(chosen) + 1} is about.` : `The numbers are those of the findings.${both ? ` Chances, for clients on ${map.view}, are “${sides[0].words} → ${sides[1].words}”; what only the first has is dashed.` : ""}`}</p>
          <Problem error={error} />
        </div>
      )}
      <FoundMap map={drawn} before={both?.before ?? null} cards={cards} chosen={chosen} choose={choose} sides={sides} found={found} hrefOf={own ? ofTheirs : onMap} label="Map with what differs marked" />
      <OtherFaults map={drawn} cards={cards} audits={audits && !own} />
    </>
  );
}
