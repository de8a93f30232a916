// Builds the page: node build.mjs [DIRECTORY], by default into ../kproxy/explorer/static. The same source and lock file give
// the same bytes.

import { copyFile, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const BUNDLED = ["preact", "@dagrejs/dagre", "@dagrejs/graphlib"];

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.resolve(process.argv[2] ?? path.join(here, "../kproxy/explorer/static"));

await mkdir(target, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.jsx", style: "src/style.css" },
  outdir: target,
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  // The licences are in a file of their own, whole.
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
await rename(path.join(target, "style.css"), path.join(target, "app.css"));
for (const name of ["index.html", "export.html"]) await copyFile(path.join(here, "src", name), path.join(target, name));

const texts = ["app.js holds these libraries:"];
for (const name of BUNDLED) {
  const folder = path.join(here, "node_modules", name);
  const { version } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
  texts.push(`${name} ${version}\n\n${(await readFile(path.join(folder, "LICENSE"), "utf8")).trim()}`);
}
await writeFile(path.join(target, "LICENSES.txt"), `${texts.join("\n\n----\n\n")}\n`);
