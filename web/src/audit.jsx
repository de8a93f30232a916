// What `kproxy audit` finds, each leading to the map, the Service and the question.

import { embedded, holds, useAnswer } from "./api.js";
import { Busy, Problem } from "./parts.jsx";
import { href } from "./route.js";
import { count, fit } from "./words.js";

const ORDER = ["error", "warning", "info"];

export function AuditView({ route, revision }) {
  const { data, error, busy } = useAnswer("api/audit", undefined, revision);
  const { severity = "" } = route.query;
  const to = (changes) => href("audit", { ...route.query, ...changes });
  const findings = (data?.findings ?? []).filter((item) => !severity || item.severity === severity);
  return (
    <section class="view">
      <div class="bar-top"><h1>Audit</h1>{data && <p class="counts">{count(data.questions, "packet")} judged on {count(data.judged.length, "node")} of {data.nodes.length}</p>}<Busy busy={busy} words="Judging all Services on all nodes…" /></div>
      <Problem error={error} />
      {data && (
        <>
          <ul class="chips" aria-label="Severities">
            {["", ...ORDER].map((name) => {
              const number = data.findings.filter((item) => !name || item.severity === name).length;
              return <li key={name}><a href={to({ severity: name })} aria-current={name === severity ? "true" : undefined}>{name || "all"} {number}</a></li>;
            })}
          </ul>
          {data.findings.length === 0 && <p class="outcome-line">Nothing is wrong with what could be judged.</p>}
          <ol class="findings">
            {findings.map((item, place) => <li key={place}><Finding item={item} place={place} open={route.query.finding === String(place)} to={to} /></li>)}
          </ol>
          <Gaps title="Not decided" items={data.undecided} />
          <Gaps title="Missing" items={data.missing} />
        </>
      )}
    </section>
  );
}

function ServiceLink({ name, node }) {
  const key = name.replace(/:.*/, "");
  if (!embedded || embedded.services?.[key]) return <a href={href(["service", ...key.split("/")], { node })}>{name}</a>;
  return holds("map") ? <a href={href("map", { sel: `svc/${key}` })}>{name}</a> : <span>{name}</span>;
}

function Finding({ item, place }) {
  const node = item.nodes[0];
  const service = item.services[0]?.replace(/:.*/, "");
  const ask = askOf(item.witness);
  return (
    <article class={`finding ${item.severity}`} id={`finding-${place}`}>
      <h3><span class={`severity ${item.severity}`}>{item.severity}</span> {item.title} <small>{item.kind}</small></h3>
      <p class="where-found">
        {item.services.slice(0, 8).map((name) => <ServiceLink key={name} name={name} node={node} />)}
        {item.services.length > 8 && <span> and {item.services.length - 8} more</span>}
        {item.nodes.length > 0 && <span> on {item.nodes.slice(0, 8).map((name, number) => <>{number > 0 && ", "}<a key={name} href={holds("map") ? href("map", { sel: `node/${name}` }) : undefined}>{name}</a></>)}{item.nodes.length > 8 ? ` and ${item.nodes.length - 8} more` : ""}</span>}
      </p>
      {item.details.length > 0 && <ul class="hints">{item.details.slice(0, 6).map((text) => <li key={text}>{text}</li>)}</ul>}
      {item.witness && (
        <dl class="both">
          <div><dt>expected</dt><dd>{item.witness.expected.join(", ")}</dd></div>
          <div><dt>found</dt><dd>{item.witness.found.join(", ")}</dd></div>
        </dl>
      )}
      {item.rules.slice(0, 4).map((rule) => <p key={`${rule.file} ${rule.line}`}><small>{rule.file}{rule.line ? `:${rule.line}` : ""} · {rule.table} {rule.chain}{rule.rule ? ` ${rule.rule}` : ""}</small><br /><code>{rule.text}</code></p>)}
      {item.hint && <p class="do">{item.hint}</p>}
      <p class="actions">
        {(node || service) && holds("map") && <a class="button small" href={href("map", { sel: service ? `svc/${service}` : `node/${node}`, node: service ? node : "" })}>On the map</a>}
        {ask && holds("ask") && <a class="button small" href={ask}>Ask it</a>}
        {item.witness && <small>{fit(item.witness.packet, 120)}</small>}
      </p>
    </article>
  );
}

/** A witness's packet as a question: "tcp 10.0.0.1:40000 -> 10.96.0.10:53", from who has the source. */
function askOf(witness) {
  const found = /^(\w+) \[?([0-9a-f.:]+?)\]?(?::(\d+))? -> (\S+?)(?:,|$)/.exec(witness?.packet ?? "");
  if (!found) return "";
  const named = /(?:from|of) pod ([\w.-]+\/[\w.-]+)/.exec(`${witness.packet} ${witness.client}`);
  const from = named ? `pod/${named[1]}` : /node itself/.test(witness.client ?? "") ? `node/${witness.node}` : `outside/${found[2]}`;
  return href("ask", { from: named || from.startsWith("node/") ? from : found[2], to: found[4], proto: found[1] });
}

function Gaps({ title, items }) {
  if (!items?.length) return null;
  return (
    <details class="note"><summary>{title}: {count(items.length, "thing")}</summary>
      <ul class="hints">{items.map((item, place) => <li key={place}><b>{item.what}</b>{item.then ? `: ${item.then}` : ""}{item.why ? ` (${item.why})` : ""}{item.nodes.length ? ` on ${fit(item.nodes.join(", "), 80)}` : ""}{item.count ? `, ${count(item.count, "packet")}` : ""}</li>)}</ul>
    </details>
  );
}
