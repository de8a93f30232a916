// The state of the page is its URL: "#/ask?from=pod/shop/cart-0&to=svc/shop/web". What is not in the URL is not state.

import { useEffect, useState } from "preact/hooks";

/** Reads a hash into {path, query}. */
export function parseHash(hash) {
  const text = hash.replace(/^#\/?/, "");
  const cut = text.indexOf("?");
  const path = (cut < 0 ? text : text.slice(0, cut)).split("/").map(decode);
  const query = Object.fromEntries(new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1)));
  return { path: path[0] ? path : ["map"], query };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Writes a hash. Values that are empty are left out; slashes and colons stay readable. */
export function href(path, query = {}) {
  const parts = Array.isArray(path) ? path : [path];
  const words = Object.entries(query)
    .filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false)
    .map(([key, value]) => `${key}=${encode(String(value))}`);
  return `#/${parts.map(encode).join("/")}${words.length ? `?${words.join("&")}` : ""}`;
}

function encode(text) {
  return encodeURIComponent(text).replace(/%2F/g, "/").replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%40/g, "@");
}

/** Goes to a hash; `replace` for what is no place of its own to come back to, a scrubber's steps say. */
export function go(hash, replace = false) {
  if (hash === location.hash) return;
  if (replace) {
    history.replaceState(history.state, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = hash;
  }
}

/** In addresses findings are numbered from 1, as on the page; their places in a list count from 0. */
export const findingAt = (place) => (place === "" ? "" : String(Number(place) + 1));

/** The place of the finding that an address names, "none" if it names that or no number; `first` if it has none. */
export const placeOf = (finding, first) => (finding === undefined ? first : /^[1-9]\d*$/.test(finding) ? String(finding - 1) : "none");

/** The present route; the component is drawn again when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseHash(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
