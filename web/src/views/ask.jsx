// The question and its answer: every way that is possible, and one of them hop by hop.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { command, embedded, useAnswer } from "../api.js";
import { AskMap } from "./askmap.jsx";
import { Question } from "./question.jsx";
import { fateWords, fatesOf, nameOf } from "../packet/fates.js";
import { FAULT, faultOf, wayOf } from "../packet/fault.js";
import { missingWords, momentsOf, stationsOf } from "../packet/moments.js";
import { receivers, serviceTarget } from "../names.js";
import { Bar, Busy, Chance, End, Problem } from "../parts.jsx";
import { go, href } from "../route.js";
import { Hooks, Strip } from "../packet/strip.jsx";
import { ENDS, count, endOf, endWords, exactly, failsOn, fatalOf, fit, hostId, isLong, percent, plain, sentTo, shortName, whereOf } from "../words.js";

/** Of so few ways at most each that is lost says why; more are told in sums. */
const FEW_WAYS = 4;
/** Of more that fare alike the list is there on demand. */
const MOST_ROWS = 12;

/** Of so many nodes at most each is offered. */
const MOST_NODES = 24;

/** The question that a URL asks, as the server takes it. */
export function questionOf(query, edits = []) {
  if (!query.from || !query.to) return null;
  const question = { from: query.from, to: query.to };
  if (query.port) question.port = /^\d+$/.test(query.port) ? Number(query.port) : query.port;
  if (query.proto) question.protocol = query.proto;
  if (query.sport) question.sport = Number(query.sport);
  const assume = Object.fromEntries((query.assume ?? "").split(",").filter(Boolean).map((item) => {
    const cut = item.lastIndexOf("=");
    return [item.slice(0, cut), item.slice(cut + 1) === "yes"];
  }));
  if (Object.keys(assume).length) question.assume = assume;
  if (edits.length) question.edits = edits;
  if (query.source) question.source = query.source;
  return question;
}

export function AskView({ route, map, source, revision, edits = [], error: mapError }) {
  const { query } = route;
  const question = useMemo(() => questionOf(query, edits), [query.from, query.to, query.port, query.proto, query.sport, query.assume, query.source, edits]);
  const { data, error, busy } = useAnswer(question && "api/ask", question ?? undefined, revision);
  const answer = question ? data : null;
  const number = useMemo(() => wayOf(answer?.journeys ?? [], query.way), [answer, query.way]);
  const way = answer?.journeys[number] ?? null;
  const moments = useMemo(() => (way ? momentsOf(way) : []), [way]);
  const lost = way && failsOn(way) ? faultOf(moments, way) : -1;
  // What is lost is looked at for where it is lost.
  const asked = query.step || (lost >= 0 ? FAULT : "0");
  const step = asked === FAULT ? faultOf(moments, way, query.way) : Math.min(Number(asked) || 0, Math.max(0, moments.length - 1));
  const moment = moments[step] ?? null;
  const to = (changes) => href("ask", { ...query, ...changes });
  const ask = (changes) => href("ask", { ...query, way: "", step: "", assume: "", whole: query.whole, ...changes });
  return (
    <section class="view split ask">
      <div class="main">
        {command === "trace" ? <h1 class="packet">{embedded.title}</h1> : <h1 class="visually-hidden">Ask</h1>}
        {!command && <Question query={query} map={map} ask={ask} error={error} asked={Boolean(question && !error)} />}
        {edits.length > 0 && <p class="note">Asked of the changed copy (<a href={href("whatif", { edits: query.edits })}>{count(edits.length, "change")}</a>).</p>}
        {query.source && <p class="note">Asked of {query.source === "against" ? <b>{source.against?.label ?? "the second source"}</b> : "the rules that the objects ask for"} (<a href={ask({ source: "" })}>ask {source.label} as it is</a>).</p>}
        <Problem error={error ?? (map ? null : mapError)} />
        {error?.field === "to" && map && /^nodeport\/[^@]+$/.test(query.to) && <AtNode map={map} ask={ask} target={query.to} />}
        {way && <Outcome way={way} alone={answer.journeys.length === 1} />}
        {map && <AskMap map={map} query={query} answer={answer} way={way} moment={moment} ask={ask} to={to} />}
        {way && <Player way={way} moments={moments} number={number} step={step} lost={lost} to={to} protocol={answer.protocol} />}
      </div>
      <div class="side">
        <aside class="panel" aria-label="Ways">
          <Busy busy={busy && question} words="Computing…" />
          {answer ? <Ways answer={answer} map={map} number={number} to={to} query={query} /> : <AskHelp map={map} query={query} />}
        </aside>
        {way && <Rules way={way} moment={moment} step={step} number={number} question={question} query={query} to={to} />}
      </div>
    </section>
  );
}

function AskHelp({ map, query }) {
  const known = embedded?.asks?.map((item) => item.request) ?? [];
  // What is asked by more than one protocol says by which.
  const twice = new Set([...Map.groupBy(known, (item) => item.to)].filter(([, items]) => new Set(items.map((item) => item.protocol)).size > 1).map(([target]) => target));
  return (
    <>
      <h2>Where does a packet go?</h2>
      {!query.from && <p>Choose who asks on the map, or type it: a Pod, a node, an address.</p>}
      {!query.from && !embedded && map && <h3>For example</h3>}
      {query.from && !query.to && <p>From <b>{plain(query.from)}</b>. Now choose whom it asks: a Service, a Pod, or an address with a port.</p>}
      {embedded && <p class="note">This file holds {count(known.length, "answer")}; other questions need kproxy explore.</p>}
      <ul class="plain examples">
        {known.slice(0, 60).map((item) => <li key={`${item.from} ${item.to} ${item.protocol}`}><a href={href("ask", { from: item.from, to: item.to, proto: item.protocol })}>{plain(item.from)} → {item.to}{twice.has(item.to) ? ` ${item.protocol.toUpperCase()}` : ""}</a></li>)}
        {!embedded && map && examples(map).map(([from, target]) => <li key={target}><a href={href("ask", { from, to: target })}>{shortName(from)} → {target.replace(/^svc\//, "")}</a></li>)}
      </ul>
    </>
  );
}

/** Some questions that can be asked of any cluster, of people's own Pods and Services first. */
function examples(map) {
  const system = (item) => item.namespace.startsWith("kube-");
  const asks = (pod) => pod.addresses.length > 0 && !pod.hostNetwork && !pod.bare;
  const from = (map.pods.find((pod) => asks(pod) && !system(pod)) ?? map.pods.find(asks) ?? map.nodes[0])?.id;
  if (!from) return [];
  const services = map.services.filter((service) => !service.skipped);
  const found = [...services.filter((service) => !system(service)), ...services.filter(system)].slice(0, 4).map((service) => [from, serviceTarget(service)]);
  const port = receivers(map).find((target) => target.startsWith("nodeport/"));
  if (port && map.outside[0]) found.push([map.outside[0].id, port]);
  return found;
}

/** A node port is asked at a node: which. */
function AtNode({ map, ask, target }) {
  const nodes = map.nodes.filter((node) => node.isNode !== false);
  return (
    <p class="at-node">Ask it at{nodes.slice(0, MOST_NODES).map((node) => <a key={node.id} class="button small" href={ask({ to: `${target}@${node.name}` })}>{node.name}</a>)}
      {nodes.length > MOST_NODES && <small> and {nodes.length - MOST_NODES} more: {target}@NODE</small>}
    </p>
  );
}

function Ways({ answer, map, number, to, query }) {
  const fates = useMemo(() => fatesOf(answer.journeys, map), [answer, map]);
  const many = answer.journeys.length > FEW_WAYS;
  const assumed = new Map((query.assume ?? "").split(",").filter(Boolean).map((item) => [item.slice(0, item.lastIndexOf("=")), item.slice(item.lastIndexOf("=") + 1)]));
  const settle = (expression, value) => {
    const next = new Map(assumed);
    if (value) next.set(expression, value);
    else next.delete(expression);
    return to({ assume: [...next].map(([key, word]) => `${key}=${word}`).join(","), way: "", step: "" });
  };
  return (
    <>
      <h2>{count(answer.journeys.length, "way")}</h2>
      <p class="asked-words">{answer.protocol.toUpperCase()} from <b>{plain(answer.from)}</b> to <b>{answer.to}</b></p>
      {many && <p class="sums">{sentence(fates.map(fateWords).join(", "))}.</p>}
      {fates.map((fate) => (
        <Fate key={fate.key} fate={fate} headed={many && fates.length > 1} number={number}>
          {(place) => {
            const way = answer.journeys[place];
            const where = many ? shortName(nameOf(way, map)) : whereOf(way);
            return (
              <li key={place}>
                <a class={`way-item ${ENDS[way.end]?.kind ?? "open"}`} href={to({ way: place, step: "" })} aria-current={place === number ? "true" : undefined}>
                  <Chance chance={way.probability} kind={ENDS[way.end]?.kind} />
                  <End end={endOf(way)} />
                  <span class={isLong(where, way) ? "where long" : "where"}>{where}</span>
                  {place === number && exactly(way.probability) && <span class="more-words">{exactly(way.probability)}</span>}
                  {place !== number && way.end !== "answered" && !many && <span class="more-words">{whole(way)}</span>}
                </a>
              </li>
            );
          }}
        </Fate>
      ))}
      {answer.settle?.length > 0 && (
        <section class="settle">
          <h3>What would settle it</h3>
          {answer.settle.map((item) => {
            const chosen = assumed.get(item.expression) ?? "";
            return (
              <fieldset key={item.expression}>
                <legend>Does <code>{item.expression}</code> match?</legend>
                <div class="switch">
                  {[["", "open"], ["yes", "yes"], ["no", "no"]].map(([value, words]) => <a key={value} class="button small" href={settle(item.expression, value)} aria-current={chosen === value ? "true" : undefined}>{words}</a>)}
                </div>
              </fieldset>
            );
          })}
        </section>
      )}
      {answer.hints?.length > 0 && <ul class="hints">{answer.hints.map((item) => <li key={item}>{item}</li>)}</ul>}
      {answer.assumptions?.length > 0 && <details open={Boolean(command)}><summary>{count(answer.assumptions.length, "assumption")}</summary><ul class="hints">{answer.assumptions.map((item) => <li key={item}>{item}</li>)}</ul></details>}
      {answer.missing?.length > 0 && <details><summary>{count(answer.missing.length, "thing")} missing in the source</summary><ul class="hints">{answer.missing.map((item) => <li key={item}>{item}</li>)}</ul></details>}
    </>
  );
}

/** Ways that fare alike. What is long of them is there on demand, but for the one that is shown. */
function Fate({ fate, headed, number, children }) {
  const [open, setOpen] = useState(false);
  const long = fate.places.length > MOST_ROWS;
  const shown = long && !open ? fate.places.filter((place) => place === number) : fate.places;
  return (
    <>
      {headed && <h3 class="alike-ways">{sentence(fateWords(fate))}</h3>}
      <ol class="ways">{shown.map(children)}</ol>
      {long && <button type="button" class="small-button" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Hide them" : `Show all ${fate.places.length}`}</button>}
    </>
  );
}

/** How a way ends, with what it was sent to. */
const whole = (way) => [sentTo(way) && `sent to ${sentTo(way)}`, endWords(way)].filter(Boolean).join(", ");

/** What becomes of the packet of the way that is shown, whichever step is; of several ways with its chance. `model`: what
 *  became of a real one is told, too. */
function Outcome({ way, alone }) {
  const { kind, mark } = ENDS[way.end] ?? { kind: "open", mark: "?" };
  const said = alone ? whole(way) : `this way, ${percent(way.probability)}: ${whole(way)}`;
  const words = sentence(said);
  const cut = way.reason && words.endsWith(`: ${way.reason}`) ? words.length - way.reason.length : words.length;
  return (
    <p class={`answer outcome-line ${kind}`} aria-live="polite" data-test="answer">
      <span class="outcome-mark" aria-hidden="true">{mark} </span><b>{words.slice(0, cut)}{cut === words.length && "."}</b>{cut < words.length && `${words.slice(cut)}.`}
    </p>
  );
}

/** Steps through a way: the scrubber, what happens, the strip. */
function Player({ way, moments, number, step, lost, to, protocol }) {
  const moment = moments[step];
  const stops = moment.kind === "end" && moment.direction === failsOn(way);
  const before = step > 0 && moments[step - 1].direction === moment.direction ? moments[step - 1].header : null;
  const at = (place) => to({ way: number, step: String(place) });
  const seek = (place) => go(at(Math.max(0, Math.min(moments.length - 1, place))), true);
  const hopStart = (offset) => {
    const key = (item) => `${item.direction} ${item.hop}`;
    if (offset > 0) return moments.findIndex((item, place) => place > step && key(item) !== key(moment));
    const first = moments.findIndex((item) => key(item) === key(moment));
    return first < step ? first : moments.findIndex((item) => first > 0 && key(item) === key(moments[first - 1]));
  };
  // A key may come before effects have run after the last one: what it does is that of the step that is shown.
  const keys = useRef(null);
  keys.current = (event) => {
    if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range") return;
    if (event.target.closest?.(".map")) return;
    if (event.target.type === "range" && event.key.startsWith("Arrow")) return;
    const goTo = { ArrowRight: step + 1, ArrowLeft: step - 1, n: step + 1, p: step - 1, Home: 0, End: moments.length - 1 }[event.key];
    const hopTo = event.key === "N" ? hopStart(1) : event.key === "P" ? hopStart(-1) : -1;
    if (event.target.closest?.(".scroll") && event.key.startsWith("Arrow")) return;
    if (goTo !== undefined) seek(goTo);
    else if (hopTo >= 0) seek(hopTo);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    const pressed = (event) => keys.current(event);
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return (
    <section class={way.end === "answered" || moments.some((item) => item.header.outer) ? "player roomy" : "player"} aria-label="Step through the way">
      <div class="controls">
        <button type="button" onClick={() => seek(step - 1)} disabled={step === 0} aria-label="One step back">◀</button>
        <button type="button" onClick={() => seek(step + 1)} disabled={step === moments.length - 1} aria-label="One step on" class="primary">▶</button>
        <span class="scrubber">
          {lost >= 0 && <svg aria-hidden="true"><line class={ENDS[way.end]?.kind} x1={`${100 * lost / (moments.length - 1)}%`} x2={`${100 * lost / (moments.length - 1)}%`} y1="0" y2="100%" /></svg>}
          <input type="range" min={0} max={moments.length - 1} value={step} aria-label="Where on the way" aria-valuetext={`${moment.words}, at ${shortName(hostId(moment.host))}`}
            onInput={(event) => seek(Number(event.currentTarget.value))} />
        </span>
        <span class="position">{step + 1}/{moments.length}</span>
        <button type="button" class="small-button" onClick={() => seek(hopStart(1))} disabled={hopStart(1) < 0}>next host</button>
        {lost >= 0 && <button type="button" class="small-button" onClick={() => seek(step === lost ? 0 : lost)}>{step === lost ? "from the start" : ENDS[way.end]?.kind === "bad" ? "where it is lost" : "where it is open"}</button>}
      </div>
      <ol class="rail" aria-label="Hosts on the way">
        {[["there", way.there], ["back", way.back ?? []]].map(([direction, list]) => list.map((item, place) => {
          const first = moments.findIndex((each) => each.direction === direction && each.hop === place);
          const here = moment.direction === direction && moment.hop === place;
          return (
            <li key={`${direction} ${place}`} class={`${direction}${here ? " here" : ""}`}>
              <a href={at(first)} aria-current={here ? "step" : undefined}>{direction === "back" && place === 0 ? "↩ " : ""}{fit(hostName(item.host), 20)}</a>
            </li>
          );
        }))}
      </ol>
      <p class={stops ? `now stops ${ENDS[way.end]?.kind ?? "open"}` : "now"} aria-live="polite" data-test="now">
        <b>{placeName(moment.host)}</b>: {moment.hook ? <><i>{moment.hook}</i> </> : null}{moment.words}
      </p>
      <Strip header={moment.header} protocol={protocol} lit={moment.lit} before={before} />
    </section>
  );
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

const isRuleHost = (hop) => (hop.steps ?? []).length > 0 && !hop.host.startsWith("pod/") && !hop.host.startsWith("outside/");

/** What connection tracking calls packets whose translation is decided. */
const KNOWN = /^(ESTABLISHED|RELATED)$/;

/** The rules of the hop where the packet is: those that matched, and on demand those that were asked in vain. */
function Rules({ way, moment, step, number, question, query, to }) {
  const hops = moment.direction === "there" ? way.there : way.back;
  const hop = hops[moment.hop];
  const all = query.rules === "all";
  const matched = hop.rules ?? [];
  const asked = all ? { ...question, journey: number, direction: moment.direction, hop: moment.hop } : null;
  const { data, error, busy } = useAnswer(asked && "api/rules", asked ?? undefined);
  const delivered = hop.verdict === "ACCEPT" && hop.via === "local";
  const route = stationsOf(hop);
  const fatal = fatalOf(hop);
  const current = moment.detail ?? (moment.kind === "end" ? fatal : undefined);
  const is = (step, table, chain, rule) => step && step.table === table && step.chain === chain && step.rule === rule;
  const missing = moment.direction === "there" && way.untranslated?.hop === moment.hop ? way.untranslated : null;
  const hooks = withMissing(all && data ? data.hooks : fromMatched(matched), missing);
  const most = Math.max(0, ...hooks.flatMap((hook) => hook.chains.flatMap((chain) => chain.rules.map((rule) => rule.packets ?? 0))));
  const box = useRef(null);
  // Beside a map that comes after the answer the list has another size than alone.
  const look = useRef(null);
  look.current = () => {
    const frame = box.current;
    if (!frame || frame.scrollHeight <= frame.clientHeight) return;
    const here = frame.querySelector(".rule.now") ?? frame.querySelector(".hook-rules.here");
    // Where no rule was for the packet it is the chain that is looked at; at its end a packet has met all rules.
    if (here?.matches(".missing")) frame.scrollTop = here.closest(".chain").offsetTop;
    else frame.scrollTop = here ? here.offsetTop - frame.clientHeight / 2.4 : /^(end|wire)$/.test(moment.kind) ? frame.scrollHeight : 0;
  };
  useEffect(() => look.current(), [step, number, data, all]);
  useEffect(() => {
    const watch = new ResizeObserver(() => look.current());
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return (
    <section class="rules" aria-label={`Rules of ${hop.host}`}>
      <div class="bar-top">
        <h2>Rules of {hostName(hop.host)}</h2>
        <Busy busy={busy} words="Reading rules…" />
        {!embedded && (isRuleHost(hop) || all) && <a class="button small" href={to({ rules: all ? "" : "all" })} aria-current={all ? "true" : undefined}>{all ? "Only matched" : "Also unmatched"}</a>}
      </div>
      {isRuleHost(hop) && (
        <Hooks route={route} verdict={hop.verdict} missing={missing?.hook} now={moment.kind === "route" && route.includes("routing") ? "routing" : moment.hook || (moment.kind === "arrive" ? "in" : moment.kind === "wire" ? "out" : moment.kind === "end" && delivered ? "host" : "")}
          label={`Hooks of ${hostName(hop.host)} that the packet passes: ${route.filter((name) => /^[A-Z]/.test(name)).join(", ")}${missing ? `; in ${missing.hook} no rule is for it` : ""}; then ${hop.verdict}`} />
      )}
      {isRuleHost(hop) && KNOWN.test(hop.ctstate ?? "") && <p class="note">Of a known connection: no rule of nat is asked; connection tracking translates it as it did the first packet.</p>}
      <Problem error={all ? error : null} />
      <div class="rule-list" ref={box} tabIndex={0} role="group" aria-label="Rules in the order in which the packet meets them">
        {hooks.length === 0 && <p class="note">{hop.host.startsWith("pod/") ? "A Pod has no rules of its own here." : hop.verdict === "INDETERMINATE" ? "Which rules apply is open; see above what would settle it." : "No rule here says anything about this packet."}</p>}
        {hooks.map((hook, place) => (
          <div key={place} class={`hook-rules${moment.hook === hook.hook ? " here" : ""}`}>
            <h3>{hook.hook || "rules"}</h3>
            {hook.chains.map((chain, each) => (
              <div key={each} class="chain">
                <h4>{chain.table} <b>{chain.chain}</b>{chain.source ? ` · ${chain.source}` : ""}{chain.asked > 1 ? <small> {count(chain.asked, "rule")} asked</small> : null}</h4>
                <ol>
                  {chain.rules.map((rule) => (
                    <li key={rule.rule} class={`rule${!rule.matched ? " unmatched" : ""}${is(current, chain.table, chain.chain, rule.rule) ? " now" : ""}${is(fatal, chain.table, chain.chain, rule.rule) ? " fatal" : ""}`}>
                      <span class="number">{rule.rule}</span>
                      <div>
                        {(rule.provenance || tells(rule)) && <p>{tells(rule) && <b>{rule.did}</b>} {rule.provenance && <Provenance text={rule.provenance} />}</p>}
                        <RuleText text={rule.text} />
                        {rule.packets ? <p class="met"><Bar share={rule.packets / most} /><small>{count(rule.packets, "packet")} so far</small></p> : null}
                      </div>
                    </li>
                  ))}
                </ol>
                {chain.missing && <p class={`rule fatal missing${/^(missing|end)$/.test(moment.kind) ? " now" : ""}`}><span class="number" /><b>{sentence(missingWords(missing, hop.dst, "here"))}.</b></p>}
                {chain.left > 0 && <p class="note">{count(chain.left, "more rule")} of this chain did not match.</p>}
              </div>
            ))}
          </div>
        ))}
      </div>
    </section>
  );
}

/** Whether what a rule did is more than its text says. */
const tells = (rule) => rule.did && !/^(jump|goto|RETURN|return)\b/.test(rule.did);

/** A rule as it is written: strong where it leads to, and not so strong comments, and what its chain's heading says. */
function RuleText({ text }) {
  const parts = text.split(/(^-A \S+ |-m comment --comment (?:"(?:[^"\\]|\\.)*"|\S+) ?|(?:-[jg]|jump|goto) \S+)/);
  return <code>{parts.map((part, place) => (place % 2 === 0 ? part : /^-[Am]/.test(part) ? <span key={place} class="soft">{part}</span> : <b key={place}>{part}</b>))}</code>;
}

/** A host for people: a dump's one host has no name. */
const hostName = (host) => (host === "host" ? "this host" : shortName(hostId(host)));

/** Where something happens: a packet is on a node, and at whoever has no rules. */
const placeName = (host) => `${host.includes("/") ? "At" : "On"} ${hostName(host)}`;

/** Names a rule's Service, as a link where it says one. */
function Provenance({ text }) {
  const found = /\b([a-z0-9][a-z0-9.-]*)\/([a-z0-9][a-z0-9-]*)(?::[\w-]+)?/.exec(text);
  if (!found || /\d+\.\d+/.test(found[1]) || (embedded && !embedded.services?.[`${found[1]}/${found[2]}`])) return <span class="provenance">{text}</span>;
  return <span class="provenance">{text.slice(0, found.index)}<a href={href(["service", found[1], found[2]])}>{found[0]}</a>{text.slice(found.index + found[0].length)}</span>;
}

/** The chain in which no rule was for the packet is marked, and there although none of its rules matched. */
function withMissing(hooks, missing) {
  if (!missing) return hooks;
  const is = (chain) => chain.table === missing.table && chain.chain === missing.chain;
  const known = hooks.some((hook) => hook.hook === missing.hook) ? hooks : [{ hook: missing.hook, chains: [] }, ...hooks];
  return known.map((hook) => {
    if (hook.hook !== missing.hook) return hook;
    const chains = hook.chains.some(is) ? hook.chains : [...hook.chains, { table: missing.table, chain: missing.chain, rules: [] }];
    return { ...hook, chains: chains.map((chain) => (is(chain) ? { ...chain, missing } : chain)) };
  });
}

function fromMatched(rules) {
  const hooks = [];
  for (const rule of rules) {
    let hook = hooks.at(-1);
    if (!hook || hook.hook !== rule.hook) hooks.push((hook = { hook: rule.hook, chains: [] }));
    let chain = hook.chains.at(-1);
    if (!chain || chain.table !== rule.table || chain.chain !== rule.chain) hook.chains.push((chain = { table: rule.table, chain: rule.chain, source: rule.source, rules: [] }));
    chain.rules.push({ ...rule, matched: true });
  }
  return hooks;
}

