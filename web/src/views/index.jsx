// The views beside map, question and Services; one is listed when the server can answer it, else it says what it needs.

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
  { name: "whatif", title: "What if", key: "w", show: WhatIfView, shown: (can) => can.whatif, needs: "Changes are made to objects, and one host’s rules have none: this needs a snapshot, manifests, a lab or a cluster." },
  { name: "compare", title: "Compare", key: "c", show: CompareView, shown: (can) => can.compare, needs: "One host’s rules alone can be compared with nothing. Start kproxy explore with --against and a second source." },
  { name: "audit", title: "Audit", key: "u", show: AuditView, shown: (can) => can.audit, needs: "An audit judges the rules that nodes really have by what the objects ask for. Manifests have no such rules, and one host’s rules no objects: this needs a snapshot (kproxy collect) or a lab." },
  { name: "live", title: "Live", key: "l", show: LiveView, shown: (can, source) => can.lab || (source.live && can.events), needs: "This source does not change by itself: this needs a lab or a cluster." },
];
