// node build.mjs --modules node_modules --html report.html --cc report_template.cc
// Bundles src/ and its styles into two pages without outside references, that of reports and that of `moesim serve`, and
// writes them as files and as the C++ source that the binary embeds. A page holds a marker where moesim puts its data.
import { createHash } from "node:crypto";
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

async function bundled(source) {
  const made = await build({
    entryPoints: [join(here, "src", source)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: "es2020",
    charset: "utf8",
    legalComments: "none",
    nodePaths: [options.modules],
  });
  return made.outputFiles[0].text;
}

// Bundled packages, with their licences.
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

const escaped = (script) => script.replace(/<\/script/gi, "<\\/script").replace(/<!--/g, "<\\!--");

// `of`: what its title names; `policy`: what stands in the page; of a page that comes from a server it is a header.
function pageOf(of, script, style, policy, noscript) {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
${policy}<title>moesim ${of}</title>
<link rel="icon" href="data:,">
<style>${style}</style>
</head>
<body>
<noscript>${noscript}</noscript>
<script type="application/json" id="moesim-data">${marker}</script>
<script>${script}</script>
<!--
${notices}
-->
</body>
</html>
`;
}

const page = pageOf("@MOESIM_VERB@", escaped(await bundled("main.ts")), await bundled("style.css"),
  `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">\n`,
  "This report draws its pictures with a script; the numbers are in the JSON at the end of the file.");
const liveScript = escaped(await bundled("live.ts"));
const live = pageOf("live", liveScript, await bundled("live.css"), "", "This page asks with a script; the command line answers the same without.");
// Only this script runs, whatever an answer holds.
const livePolicy = `default-src 'none'; script-src 'sha256-${createHash("sha256").update(liveScript).digest("base64")}'; ` +
  "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
for (const one of [page, live]) {
  if (one.split(marker).length !== 2) throw new Error("a page must hold the marker once");
  if (one.includes(')page"') || one.includes("\r")) throw new Error("a page must not end a literal of C++");
}
if (options.html) writeFileSync(options.html, page);
if (options.cc) {
  // Every C++20 compiler takes literals of 65,536 characters.
  const embedded = (text) => text.match(/[^]{1,12000}/gu).map((piece) => `    R"page(${piece})page"`).join("\n");
  writeFileSync(
    options.cc,
    `// Made by tools/report/build.mjs.
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {

std::string_view report_template() {
  static constexpr char kPage[] =
${embedded(page)};
  return {kPage, sizeof(kPage) - 1};
}

std::string_view live_template() {
  static constexpr char kPage[] =
${embedded(live)};
  return {kPage, sizeof(kPage) - 1};
}

std::string_view live_policy() {
  return "${livePolicy}";
}

std::string_view report_missing() { return ""; }

}  // namespace moesim::tools
`,
  );
}
