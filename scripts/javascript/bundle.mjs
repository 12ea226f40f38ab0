// Bundle the chart runtime with the licence texts of all that is in it, and copy axe-core.
import { copyFileSync, existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const RUNTIME = "../../labctl/report/page/vega.js";
const AXE = "../../tests/fixtures/axe-core.min.js";

const made = await build({
  entryPoints: ["runtime.js"],
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "iife",
  target: "es2020",
  legalComments: "none",
  metafile: true,
  write: false,
});

const packages = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const found = path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
const texts = new Map(); // licence text -> the packages under it
for (const path of [...packages].sort()) {
  const { name, version, license } = JSON.parse(readFileSync(`${path}/package.json`, "utf8"));
  const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry));
  const text = file ? readFileSync(`${path}/${file}`, "utf8").trim() : `Licence: ${license}`;
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
}
const notices = [...texts].map(([text, names]) => `${names.join(", ")}:\n\n${text}`);
const banner = `/*!\nMade by scripts/javascript/make of labctl, from:\n\n${notices.join("\n\n\n")}\n*/\n`;
if (banner.indexOf("*/") !== banner.length - 3) throw new Error("a licence text ends the comment");
const code = made.outputFiles[0].text;
if (/<\/script|<!--/i.test(banner + code)) throw new Error("the bundle would end its script element");
writeFileSync(RUNTIME, banner + code);
copyFileSync("node_modules/axe-core/axe.min.js", AXE);
