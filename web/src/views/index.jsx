// The views beside map, question and Services; one is listed when the server can answer it.

import { AuditView } from "./audit.jsx";
import { CompareView } from "./compare.jsx";
import { LiveView } from "./live.jsx";
import { WhatIfView } from "./whatif.jsx";

/** The changes of a what-if copy, as the URL holds them; null if they are no list of changes. */
export function editsOf(query) {
  if (!query.edits) return [];
  try {
    const found = JSON.parse(query.edits);
    return Array.isArray(found) && found.every((edit) => typeof edit?.do === "string") ? found : null;
  } catch {
    return null;
  }
}

export const VIEWS = [
  { name: "whatif", title: "What if", key: "w", show: WhatIfView, shown: (can) => can.whatif },
  { name: "compare", title: "Compare", key: "c", show: CompareView, shown: (can) => can.compare },
  { name: "audit", title: "Audit", key: "u", show: AuditView, shown: (can) => can.audit },
  { name: "live", title: "Live", key: "l", show: LiveView, shown: (can, source) => can.lab || (source.live && can.events) },
];
