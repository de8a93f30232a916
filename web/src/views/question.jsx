// The form of a question. Once it is asked, a phone has one line of it, which opens the rest.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { receivers, senders } from "../names.js";
import { Field } from "../parts.jsx";
import { go } from "../route.js";
import { shortName } from "../words.js";

/** @param asked whether there is an answer, or one is awaited: what is wrong with a question is mended in the form */
export function Question({ query, map, ask, error, asked }) {
  const form = useRef(null);
  const [from, to] = useMemo(() => (map ? [senders(map), receivers(map)] : [[], []]), [map]);
  const [open, setOpen] = useState(false);
  const key = JSON.stringify([query.from, query.to, query.port, query.proto]);
  useEffect(() => setOpen(false), [key]);
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form.current));
    // The same question again has its answer already.
    setOpen(false);
    go(ask({ from: given.from.trim(), to: given.to.trim(), port: given.port?.trim(), proto: given.proto }));
  };
  useSlash(asked && !open, () => setOpen(true), form);
  return (
    <>
      {asked && (
        <button type="button" class="folded-question" aria-expanded={open} aria-controls="question" onClick={() => setOpen(!open)}>
          <span>{inShort(query)}<span class="visually-hidden"> (change the question)</span></span> <span aria-hidden="true">✎</span>
        </button>
      )}
      <form id="question" class={`filters question${asked && !open ? " folded" : ""}`} ref={form} onSubmit={submit}>
        <Field label="From" name="from" value={query.from ?? ""} options={from} hint="pod/shop/cart-0" bad={error?.field === "from"} classes="wide" />
        <a class="swap" href={ask({ from: query.to ?? "", to: query.from ?? "" })} aria-label="Swap source and target">⇄</a>
        <Field label="To" name="to" value={query.to ?? ""} options={to} hint="svc/shop/web or 10.96.0.1:443" bad={error?.field === "to"} classes="wide" />
        <Field label="Port" name="port" value={query.port ?? ""} hint="its own" bad={error?.field === "port"} classes="narrow" />
        <label class="labelled narrow"><span>Protocol</span>
          <select name="proto" value={query.proto ?? ""}>
            {[["", "its own"], ["tcp", "TCP"], ["udp", "UDP"], ["sctp", "SCTP"], ["icmp", "ICMP"]].map(([name, words]) => <option key={name} value={name} selected={name === (query.proto ?? "")}>{words}</option>)}
          </select>
        </label>
        <button class="primary" type="submit">Ask</button>
      </form>
    </>
  );
}

const KINDS = { nodeport: "node port ", lb: "load balancer of ", externalip: "external IP of " };

/** A question in few words: "cart-0 → web", "cart-0 → node port web@worker-1, UDP". */
function inShort({ from, to, port, proto }) {
  const kind = /^(nodeport|lb|externalip)\//.exec(to)?.[1];
  return `${shortName(from)} → ${KINDS[kind] ?? ""}${shortName(to)}${port ? ` port ${port}` : ""}${proto ? `, ${proto.toUpperCase()}` : ""}`;
}

/** The key "/" leads to the first field: where it is folded away it is opened first. */
function useSlash(folded, open, form) {
  const wanted = useRef(false);
  useEffect(() => {
    if (!folded) return undefined;
    const pressed = (event) => {
      if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      wanted.current = true;
      open();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [folded]);
  useEffect(() => {
    if (folded || !wanted.current) return;
    wanted.current = false;
    form.current.elements.from.focus();
  }, [folded]);
}
