// Which way of an answer is shown first, and on which step a way is lost, or goes where it should not.

import { ENDS, endOf, failsOn, splitPort } from "../words.js";

/** In the URL instead of a step's number: the step at which the way is lost, or sent to what `way` names. */
export const FAULT = "fault";

const BADNESS = { bad: 0, open: 1, ok: 2 };

/**
 * The place of a way: by its number, or by what becomes of its packet ("10.0.0.1:80" it is sent to, "drop", "reject");
 * without either the likeliest of those that are lost, else of those that are open, else the first.
 */
export function wayOf(journeys, text = "") {
  if (/^\d+$/.test(text)) return Math.min(Number(text), Math.max(0, journeys.length - 1));
  const places = journeys.map((way, place) => place);
  const named = places.filter((place) => fits(journeys[place], text));
  const badness = (place) => BADNESS[ENDS[endOf(journeys[place])]?.kind] ?? 1;
  return (named.length ? named : places).sort((one, other) => badness(one) - badness(other) || one - other)[0] ?? 0;
}

function fits(way, text) {
  if (!text) return false;
  if (text === "drop" || text === "reject") return way.there.at(-1)?.verdict === text.toUpperCase();
  return way.there.some((hop) => hop.leftDst === text || (!splitPort(text)[1] && splitPort(hop.leftDst)[0] === text));
}

/** The step at which a packet is sent to what `text` names; else at which it is lost; else at which its destination is chosen. */
export function faultOf(moments, way, text = "") {
  const written = (moment) => moment.direction === "there" && (moment.lit.has("dst") || moment.lit.has("dport"));
  const sent = moments.findIndex((moment) => written(moment) && moment.header.dst === text);
  if (sent >= 0) return sent;
  const lost = way ? failsOn(way) : "";
  return Math.max(0, lost ? moments.findLastIndex((moment) => moment.direction === lost) : moments.findIndex(written));
}
