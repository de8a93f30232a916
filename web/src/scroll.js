// Back and forward lead to where one was on a page, although it is drawn only after the browser would have scrolled.

const LIST = ".beside, .view > .panel";
const MOST_FRAMES = 600;
/** For so many frames it is held, since what is drawn first brings its own chosen thing into sight. */
const HELD = 12;

const kept = new Map();
let entry = "";
let count = 0;
let running = 0;
let view = "";

const viewOf = () => location.hash.split("?")[0];

/** Names the present entry of the browser's history; whether it was there before. */
function known() {
  const found = history.state?.entry;
  entry = found ?? `${performance.timeOrigin} ${(count += 1)}`;
  if (!found) history.replaceState({ entry }, "");
  return Boolean(found);
}

/** Scrolls as soon as the page is long enough. What the reader does ends it. */
function restore([top, listTop]) {
  let [left, held] = [MOST_FRAMES, HELD];
  const frame = () => {
    scrollTo(0, top);
    const list = document.querySelector(LIST);
    if (list) list.scrollTop = listTop;
    if (Math.abs(scrollY - top) < 2 && Math.abs((list?.scrollTop ?? 0) - listTop) < 2) held -= 1;
    left -= 1;
    running = left && held ? requestAnimationFrame(frame) : 0;
  };
  cancelAnimationFrame(running);
  running = requestAnimationFrame(frame);
}

function stop() {
  cancelAnimationFrame(running);
  running = 0;
}

export function keepPlaces() {
  history.scrollRestoration = "manual";
  view = viewOf();
  known();
  const keep = () => {
    const place = [scrollY, document.querySelector(LIST)?.scrollTop ?? 0];
    if (!running && (kept.has(entry) || place.some(Boolean))) kept.set(entry, place);
  };
  addEventListener("scroll", ({ target }) => {
    if (target === document || target.matches?.(LIST)) keep();
  }, { capture: true, passive: true });
  // A scroll is told with the next frame: what is clicked before may lead away.
  addEventListener("click", keep, { capture: true });
  addEventListener("popstate", () => {
    stop();
    const before = view;
    view = viewOf();
    if (!known()) {
      if (view !== before) scrollTo(0, 0);
    } else if (kept.has(entry)) restore(kept.get(entry));
  });
  for (const kind of ["wheel", "touchstart", "keydown", "pointerdown"]) addEventListener(kind, stop, { capture: true, passive: true });
}
