// Characters that are not seen, and turn round or hide what stands beside them: control characters, and those that set the
// direction of writing. What the server says has marks in their places; what it is asked has the characters again.

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
/** In JSON some are written by their number. */
const ESCAPED = /\\u(?:00[0189]|007f|00ad)/i;
const MARK = /⟨U\+([0-9A-F]{4,6})⟩/g;

const marked = (text) => text.replace(UNSEEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
const has = (text) => text.search(UNSEEN) >= 0;

/** What JSON says, with marks. */
export function readMarked(text) {
  if (!has(text) && !ESCAPED.test(text)) return JSON.parse(text);
  return withMarks(JSON.parse(text));
}

/** The same of data. */
export function withMarks(data) {
  if (typeof data === "string") return has(data) ? marked(data) : data;
  if (Array.isArray(data)) return data.map(withMarks);
  if (data === null || typeof data !== "object") return data;
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [withMarks(key), withMarks(value)]));
}

/** A text without marks, as the server knows it. */
export const withoutMarks = (text) => text.replace(MARK, (_, number) => String.fromCodePoint(parseInt(number, 16)));

/** A question's data in JSON. */
export const writeUnmarked = (data) => JSON.stringify(data, (_, value) => (typeof value === "string" ? withoutMarks(value) : value));
