// Who reaches a Service from where: of each client and address how much is answered, as a bar; the reasons stand above, once.

import { holds } from "../api.js";
import { Table } from "../parts.jsx";
import { href } from "../route.js";
import { count, fit, plain } from "../words.js";
import { BarKeys, PartWords, ShareBar, isSplit } from "./sharebar.jsx";
import { partsOfCell, toldOf, verdictOf } from "./shares.js";

export const KINDS = { clusterIP: "cluster IP", externalIP: "external IP", loadBalancerIP: "load balancer", nodePort: "node port" };

/** So many columns at most are of the same width; of more each has what it needs. */
const EVEN = 5;

export function Matrix({ matrix }) {
  const cells = matrix.cells.flat().filter((cell) => !cell.meant);
  const reasons = reasonsOf(cells.map((cell) => cell.reason));
  const parts = cells.flatMap(partsOfCell);
  return (
    <section data-test="matrix">
      <h2 class="over-table">Who reaches it</h2>
      {reasons.length > 0 && (
        <ul class="reasons" aria-label="Reasons">
          {reasons.map(({ text, cells: number }, place) => <li key={text}><Letter place={place} /><span>{text} <small>{count(number, "cell")}</small></span></li>)}
        </ul>
      )}
      <Table classes={`matrix cards-on-phone${matrix.addresses.length <= EVEN ? " even" : ""}`} caption={holds("ask") ? "Each cell leads to its question" : "Clients and addresses"} head={["from", ...headsOf(matrix.addresses)]} rows={matrix.clients.map((client, row) => [
        <><b>{client.label || plain(client.id)}</b>{client.kind && <small>{client.kind}</small>}</>,
        ...matrix.addresses.map((address, column) => {
          const cell = matrix.cells[row]?.[column];
          return cell ? <Cell cell={cell} reasons={reasons} to={holds("ask") ? href("ask", { from: client.id, to: address.to, proto: address.protocol }) : undefined} /> : "–";
        }),
      ])} />
      <ul class="legend" aria-label="Legend"><BarKeys kinds={new Set(parts.map((part) => part.kind))} answered={`answered${parts.some(isSplit) ? ", a piece for each endpoint" : ""}`} /></ul>
      {matrix.left?.length > 0 && <p class="note" data-test="left-nodes">The rules of {count(matrix.left.length, "more node")} differ, too: {fit(matrix.left.join(", "), 200)}</p>}
      {matrix.unasked > 0 && <p class="note">The rules of {count(matrix.unasked, "more node")} were not asked for this table. {holds("audit") && <><a href="#/audit">The audit</a> asks all.</>}</p>}
    </section>
  );
}

function Cell({ cell, reasons, to }) {
  if (cell.meant) return <a class="cell meant" href={to}><span class="ending">– not reachable from outside, as meant</span></a>;
  const parts = partsOfCell(cell);
  const why = reasons.flatMap(({ text, wholes }, place) => (wholes.has(cell.reason) ? [{ text, place }] : []));
  return (
    <a class={`cell ${verdictOf(parts).tone}`} href={to} title={[toldOf(parts), ...why.map(({ text }) => text)].join("; ")}>
      <span class="cell-line"><PartWords parts={parts} />{why.length > 0 && <span class="letters">{why.map(({ place }) => <Letter key={place} place={place} />)}</span>}</span>
      <ShareBar parts={parts} />
    </a>
  );
}

/** By which cells name a reason: no number, since numbers are the audit's. */
const Letter = ({ place }) => <span class="letter"><span class="visually-hidden">reason </span>{place < 26 ? String.fromCharCode(97 + place) : place + 1}</span>;

/**
 * The reasons one by one, those of most cells first. A cell has its reasons in one text with "; " between them, which they may
 * have in themselves: what one cell has alone is one reason wherever it stands.
 *
 * @returns [{text, cells: how many have it, wholes: the texts of cells that it is in}]
 */
function reasonsOf(texts) {
  const found = new Map();
  const split = (text) => {
    for (const { text: one } of found.values()) {
      if (text === one) return [one];
      if (text.startsWith(`${one}; `)) return [one, ...split(text.slice(one.length + 2))];
      if (text.endsWith(`; ${one}`)) return [...split(text.slice(0, -one.length - 2)), one];
    }
    return [text];
  };
  const wholes = Map.groupBy(texts.filter(Boolean), (text) => text);
  for (const whole of [...wholes.keys()].sort((one, other) => one.length - other.length)) {
    for (const text of split(whole)) {
      const known = found.get(text) ?? { text, cells: 0, wholes: new Set() };
      found.set(text, { ...known, cells: known.cells + wholes.get(whole).length, wholes: known.wholes.add(whole) });
    }
  }
  return [...found.values()].sort((one, other) => other.cells - one.cells);
}

/** What the columns are called; the protocol only where it tells two of them apart. */
function headsOf(addresses) {
  const names = addresses.map((item) => item.label.replace(/^(clusterIP|externalIP|loadBalancerIP)\b/, (kind) => KINDS[kind]));
  const short = names.map((name) => name.replace(/\/(tcp|udp|sctp)$/i, ""));
  return short.map((name, place) => (short.indexOf(name) === short.lastIndexOf(name) ? name : names[place].replace(/\w+$/, (protocol) => protocol.toUpperCase())));
}
