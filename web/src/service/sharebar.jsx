// Parts as a bar and as words.

import { ratio } from "../words.js";
import { verdictOf, wordsOf } from "./shares.js";

/** So many pieces of a part have a width of their own. */
const MOST = 8;
export const isSplit = ({ kind, pieces }) => kind === "ok" && pieces.length > 1 && pieces.length <= MOST;
/** What is hardly ever met is seen, too. */
const LEAST = 0.02;

/**
 * Each part as wide as its chance, what is answered with a piece for each endpoint. What is lost is thin and what is not
 * known is hollow, for eyes that do not tell the colours apart; the words beside it are for ears.
 */
export function ShareBar({ parts }) {
  const pieces = parts.flatMap((part) => (isSplit(part) ? part.pieces : [part]).map(({ chance }) => ({ kind: part.kind, wide: Math.max(LEAST, ratio(chance)) })));
  const all = pieces.reduce((sum, each) => sum + each.wide, 0);
  let left = 0;
  return (
    <svg class="share-bar" aria-hidden="true">
      {pieces.map(({ kind, wide }, place) => {
        const [x, width] = [`${((left / all) * 100).toFixed(2)}%`, `${((wide / all) * 100).toFixed(2)}%`];
        left += wide;
        return <svg key={place} class={kind} x={x} width={width} height="100%">{kind === "bad" ? <line x2="100%" y1="50%" y2="50%" /> : <rect width="100%" height="100%" />}</svg>;
      })}
      {pieces.length === 0 && <rect class="none" x="0" y="0" width="100%" height="100%" />}
    </svg>
  );
}

/** A mark for all, and each part's chance. */
export function PartWords({ parts }) {
  const { tone, mark } = verdictOf(parts);
  return (
    <span class={`part-words ending ${tone}`}>
      {parts.map((part, place) => <span key={place}><span class="one-part">{place === 0 && <span aria-hidden="true">{mark} </span>}<span class={part.kind}>{wordsOf(part)}</span></span>{place < parts.length - 1 && <span class="soft">, </span>}</span>)}
    </span>
  );
}

/** What is worst in few words, where a bar beside it shows the rest. */
export function BriefWords({ parts }) {
  const { tone, mark } = verdictOf(parts);
  const worst = ["bad", "open", "ok"].map((kind) => parts.find((part) => part.kind === kind)).find(Boolean);
  const brief = ({ short, words, ...part }) => wordsOf({ ...part, words: (short ?? words).replace(/ on \S+$/, "") });
  const words = parts.length === 1 ? worst.words.replace(/ on \S+$/, "") : (parts.every((part) => part.kind === "bad") ? parts : [worst]).map(brief).join(", ");
  return <span class={`part-words ending ${tone}`}><span aria-hidden="true">{mark} </span><span class={worst.kind}>{words}</span></span>;
}

/** What the colours of bars stand for, of those `kinds` that there are. */
export const BarKeys = ({ kinds, answered = "answered" }) => [["ok", answered], ["bad", "lost, refused or sent elsewhere"], ["open", "not known"]].filter(([kind]) => kinds.has(kind)).map(([kind, words]) => <li key={kind}><Key kind={kind} /> {words}</li>);

const Key = ({ kind }) => <ShareBar parts={[{ kind, chance: "1/1", pieces: [] }]} />;
