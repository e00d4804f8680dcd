// node build.mjs --modules node_modules --html report.html --cc report_template.cc
// Bundles src/ and its style into one page without outside references, and writes it as a file and as the C++ source
// that the binary embeds. The page holds a marker where moesim puts its data.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const options = Object.fromEntries(
  process.argv.slice(2).reduce((pairs, word, i, all) => (word.startsWith("--") ? [...pairs, [word.slice(2), all[i + 1]]] : pairs), []),
);
// Packages live in the build folder, away from this file.
const { build } = createRequire(join(resolve(options.modules), "..", "package.json"))("esbuild");
const marker = "@MOESIM_DATA@";

const bundle = await build({
  entryPoints: [join(here, "src/main.ts")],
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
  nodePaths: [options.modules],
});
const style = await build({ entryPoints: [join(here, "src/style.css")], minify: true, write: false, charset: "utf8" });

// What was bundled, with the terms under which it may be passed on.
const packages = ["@observablehq/plot", "d3", "interval-tree-1d", "isoformat"];
const notices = packages
  .map((name) => {
    const about = JSON.parse(readFileSync(join(options.modules, name, "package.json"), "utf8"));
    let text = "";
    for (const file of ["LICENSE", "LICENSE.md", "license", "LICENCE"])
      try {
        text = readFileSync(join(options.modules, name, file), "utf8").trim();
        break;
      } catch {}
    return `${name} ${about.version} (${about.license})\n${text}`;
  })
  .join("\n\n")
  .replace(/--+>?/g, "-");

const script = bundle.outputFiles[0].text.replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--");
const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<title>moesim</title>
<style>${style.outputFiles[0].text}</style>
</head>
<body>
<noscript>This report draws its pictures with a script; the numbers are in the JSON at the end of the file.</noscript>
<script type="application/json" id="moesim-data">${marker}</script>
<script>${script}</script>
<!--
${notices}
-->
</body>
</html>
`;
if (page.split(marker).length !== 2) throw new Error("the page must hold the marker once");
if (options.html) writeFileSync(options.html, page);
if (options.cc) {
  // Every C++20 compiler takes literals of 65,536 characters; pieces end between characters, not inside one.
  const pieces = [];
  const bytes = Buffer.from(page, "utf8");
  for (let at = 0; at < bytes.length; ) {
    let end = Math.min(bytes.length, at + 12000);
    while (end < bytes.length && (bytes[end] & 0xc0) === 0x80) --end;
    let text = "";
    for (let i = at; i < end; ++i) {
      const c = bytes[i];
      if (c === 0x0a) text += "\\n";
      else if (c === 0x22 || c === 0x5c) text += "\\" + String.fromCharCode(c);
      else if (c === 0x3f) text += "\\?";  // no trigraphs
      else if (c < 0x20 || c >= 0x7f) text += "\\" + c.toString(8).padStart(3, "0");
      else text += String.fromCharCode(c);
    }
    pieces.push(`    "${text}"`);
    at = end;
  }
  writeFileSync(
    options.cc,
    `// Made by tools/report/build.mjs.
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {

std::string_view report_template() {
  static constexpr char kPage[] =
${pieces.join("\n")};
  return {kPage, sizeof(kPage) - 1};
}

std::string_view report_missing() { return ""; }

}  // namespace moesim::tools
`,
  );
}
