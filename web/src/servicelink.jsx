// A Service's name as a link to its page; in an exported file that has no page of it, to the map.

import { embedded } from "./api.js";
import { href } from "./route.js";

/** `name`: `namespace/name`, perhaps with `:port`; `node`: whose rules its page shows. */
export function ServiceLink({ name, node = "" }) {
  const key = name.replace(/:.*/, "");
  if (!embedded || embedded.services?.[key]) return <a href={href(["service", ...key.split("/")], { node })}>{name}</a>;
  const drawn = embedded.map?.services.some((service) => service.id === `svc/${key}`);
  return drawn ? <a href={href("map", { sel: `svc/${key}` })}>{name}</a> : <span>{name}</span>;
}
