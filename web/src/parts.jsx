// Small parts that several views share.

import { useEffect, useRef, useState } from "preact/hooks";
import { ENDS, count, percent, ratio } from "./words.js";

/** A failure in one line; what is missing in an exported file is no failure but a note. */
export function Problem({ error }) {
  if (!error) return null;
  const lines = problemLines(error.message);
  if (lines.length > 1) return <ul class="problem" role="alert">{lines.map((line) => <li key={line}>{line}</li>)}</ul>;
  return <p class={error.absent ? "note" : "problem"} role={error.absent ? undefined : "alert"}>{lines[0]}</p>;
}

/** A document may have several errors, each of which begins with the change that it is in. */
const problemLines = (message) => message.split(/\s+(?=edits\[\d+\]: )/).map((line) => line.replace(/^edits\[(\d+)\]: /, (_, place) => `change ${Number(place) + 1}: `));

/** What the audit says that was not seen of nodes, and is suspected to be there: in one line. */
export function NotSeen({ items }) {
  const found = [...new Set((items ?? []).filter((item) => item.suspected).map((item) => `${item.what} of ${item.host}: ${item.why}`))];
  if (!found.length) return null;
  return <p class="problem not-seen" role="status"><b>Not seen:</b> {found.slice(0, 3).join("; ")}{found.length > 3 ? `; and ${found.length - 3} more` : ""}. What it may change is open.</p>;
}

/** What is being done; once that takes long, for how many seconds already. */
export function Busy({ busy, words = "Computing…" }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    setSeconds(0);
    if (!busy) return undefined;
    const timer = setInterval(() => setSeconds((old) => old + 1), 1000);
    return () => clearInterval(timer);
  }, [Boolean(busy)]);
  return <span class="busy" role="status">{busy ? words : ""}{busy && seconds > 1 ? <span aria-hidden="true"> {seconds} s</span> : null}</span>;
}

/** A chance as a bar with its number. */
export function Chance({ chance, kind = "ok" }) {
  return (
    <span class={`chance ${kind}`}>
      <Bar share={ratio(chance)} />
      <b>{percent(chance)}</b>
    </span>
  );
}

/** A bar by the width of an SVG rectangle, since the page's policy allows no style attributes. */
export function Bar({ share }) {
  return (
    <svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="under" width={100} height={6} rx={3} />
      <rect class="over" width={Math.max(share ? 1.5 : 0, share * 100)} height={6} rx={3} />
    </svg>
  );
}

export function End({ end }) {
  const found = ENDS[end] ?? { mark: "·", kind: "open", words: end };
  return <span class={`ending ${found.kind}`}><span aria-hidden="true">{found.mark}</span> {found.words}</span>;
}

/** A table with a heading for screen readers; wide ones scroll in themselves. */
export function Table({ caption, head, rows, hidden = false, classes = "" }) {
  return (
    <div class={`scroll ${classes}`} tabIndex={0} role="group" aria-label={caption}>
      <table>
        <caption class={hidden ? "visually-hidden" : ""}>{caption}</caption>
        <thead><tr>{head.map((item, place) => <th key={place} scope="col">{item}</th>)}</tr></thead>
        <tbody>
          {rows.map(([first, ...rest], place) => (
            <tr key={place}><th scope="row">{first}</th>{rest.map((item, each) => <td key={each} data-label={head[each + 1]}>{item}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/**
 * A long table shows some of its rows, and others on demand; `cells` makes a row of an item that is shown. Of rows that are
 * costly to draw the first `few` are there at once, and the others once these have been painted.
 */
export function LongTable({ rows, cells = (row) => row, most = 100, few = most, ...rest }) {
  const [asked, setAsked] = useState(0);
  const [begun, setBegun] = useState(few < most);
  useEffect(() => {
    if (!begun) return undefined;
    const timer = setTimeout(() => setBegun(false), SOON);
    return () => clearTimeout(timer);
  }, []);
  // What is left of a narrowed table may have fewer.
  const first = asked < rows.length ? asked : 0;
  const last = Math.min(rows.length, first + most);
  return (
    <>
      <Table rows={rows.slice(first, begun ? Math.min(last, first + few) : last).map(cells)} {...rest} />
      {rows.length > most && (
        <p class="pager">
          <button type="button" disabled={first === 0} onClick={() => setAsked(first - most)}>Earlier</button>
          <button type="button" disabled={last === rows.length} onClick={() => setAsked(last)}>Later</button>
          <span role="status">rows {(first + 1).toLocaleString("en")} to {last.toLocaleString("en")} of {rows.length.toLocaleString("en")}</span>
        </p>
      )}
    </>
  );
}

/** Milliseconds: when the first rows have been painted. */
const SOON = 60;

/** What is made only once it is opened. */
export function Later({ summary, children, ...rest }) {
  const [opened, setOpened] = useState(false);
  return <details onToggle={(event) => event.currentTarget.open && setOpened(true)} {...rest}><summary>{summary}</summary>{opened && children()}</details>;
}

/** A text field with suggestions. Typing changes nothing until it is entered. */
export function Field({ label, name, value, options = [], onEnter, hint, bad, inputRef, classes = "" }) {
  const [text, setText] = useState(value);
  const [near, setNear] = useState(false);
  useEffect(() => setText(value), [value]);
  const list = `list-${name}`;
  // Suggestions are there once somebody is in the field: of a large cluster they are thousands.
  const most = !near ? [] : options.length > 500 ? options.filter((item) => item.includes(text)).slice(0, 200) : options;
  return (
    <label class={`labelled ${classes}`}>
      <span>{label}</span>
      <input
        ref={inputRef} name={name} value={text} list={options.length ? list : undefined} placeholder={hint} autocomplete="off" spellcheck={false} autocapitalize="off"
        aria-invalid={bad ? "true" : undefined} onInput={(event) => setText(event.currentTarget.value)} onFocus={() => setNear(true)}
        onChange={(event) => onEnter?.(event.currentTarget.value.trim())}
      />
      {options.length > 0 && <datalist id={list}>{most.map((item) => <option key={item} value={item} />)}</datalist>}
    </label>
  );
}

export function Select({ label, value, options, onChange, classes = "" }) {
  return (
    <label class={`labelled ${classes}`}>
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([key, words]) => <option key={key} value={key} selected={key === value}>{words}</option>)}
      </select>
    </label>
  );
}

/** Puts the focus on a view's heading when the view changes, so that keyboard and screen reader begin there. */
export function Heading({ children, focus }) {
  const heading = useRef(null);
  useEffect(() => {
    if (focus) heading.current?.focus({ preventScroll: true });
  }, [focus]);
  return <h1 ref={heading} tabIndex={-1}>{children}</h1>;
}

/** On a phone what is selected covers the lower half of the window; this takes it away. */
export const Close = ({ href }) => <a class="close" href={href} aria-label="Close">✕</a>;

export function Zoom({ zoom, setZoom, children }) {
  return (
    <div class="zoom" role="group" aria-label="Size of the map">
      <button type="button" onClick={() => setZoom(Math.max(0.4, zoom / 1.25))} aria-label="Smaller">−</button>
      <button type="button" onClick={() => setZoom(1)}>{Math.round(zoom * 100)}%</button>
      <button type="button" onClick={() => setZoom(Math.min(3, zoom * 1.25))} aria-label="Larger">+</button>
      {children}
    </div>
  );
}

export function saveFile(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
