// What the page of `moesim serve` makes of questions, without a browser: each line of --in is an object of texts by path,
// each line of --out what its address brings again, the scenario that the server is asked, and the words of its command.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const options = Object.fromEntries(process.argv.slice(2).map((word) => word.slice(2).split("=")));
const { build } = createRequire(join(resolve(options.modules), "..", "package.json"))("esbuild");
const made = await build({ entryPoints: [options.source], bundle: true, write: false, format: "esm", nodePaths: [options.modules] });
const page = await import(`data:text/javascript;base64,${Buffer.from(made.outputFiles[0].text).toString("base64")}`);

page.knowFields(JSON.parse(readFileSync(options.fields, "utf8")));
const lines = readFileSync(options.in, "utf8").trim().split("\n");
writeFileSync(options.out, lines.map((line) => {
  const address = new URL("http://localhost/");
  address.hash = page.fragment(new Map(Object.entries(JSON.parse(line))));
  const again = page.read(new URL(address.href).hash);
  const said = page.saidOf(again);
  return JSON.stringify({ again: Object.fromEntries(again), scenario: page.scenarioOf(again, said), words: page.commandWords(again, said) });
}).join("\n") + "\n");
