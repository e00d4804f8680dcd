// node tools/report/gallery.mjs --moesim build/moesim --modules build/tests/report --chromium /usr/bin/chromium
// Runs the commands of docs/results.md and puts the pictures that it names into docs/gallery/. Options: --width 1280,
// --theme light, --out DIR (of the pictures). A command whose recording is not on this machine is skipped, and said so.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const options = { moesim: join(root, "build/moesim"), modules: join(root, "build/tests/report"), chromium: "/usr/bin/chromium",
  width: "1100", theme: "light", out: join(root, "docs/gallery") };
const words = process.argv.slice(2);
for (let i = 0; i + 1 < words.length; i += 2) options[words[i].replace(/^--/, "")] = words[i + 1];
const { chromium } = createRequire(join(resolve(options.modules), "package.json"))("playwright-core");
const scratch = mkdtempSync(join(tmpdir(), "moesim-gallery-"));
mkdirSync(options.out, { recursive: true });

const text = readFileSync(join(root, "docs/results.md"), "utf8");
const entries = [...text.matchAll(/<!-- picture: (\S+); sections: ([^;>]+?)(; no tables)?(?:; ranks: (\S+))? -->\n```\nbuild\/moesim (.*)\n```/g)];
if (entries.length < 5) throw new Error("docs/results.md names too few pictures");
const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox"] });
for (const [, picture, sections, bare, ranks, command] of entries) {
  const missing = command.split(" ").find((word) => word.startsWith("../") && !existsSync(join(root, word)));
  if (missing) {
    console.log(`${picture}: skipped, no ${missing} here`);
    continue;
  }
  // Outputs go to a folder of their own; inputs are below the root.
  const outputs = new Set(["--report", "--out"]);
  const all = command.split(" ");
  const args = all.map((word, i) => (outputs.has(all[i - 1]) ? join(scratch, word) : word));
  execFileSync(resolve(options.moesim), [...args, "--quiet"], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  const report = args[args.indexOf("--report") + 1];
  const context = await browser.newContext({ viewport: { width: Number(options.width), height: 900 }, colorScheme: options.theme, offline: true });
  const page = await context.newPage();
  await page.goto(pathToFileURL(report).href);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true" && document.querySelector("main svg, main canvas"));
  if (ranks) await page.getByRole("searchbox", { name: "Ranks" }).fill(ranks);
  const wanted = sections.split(",").map((name) => name.trim());
  await page.evaluate(({ wanted, bare }) => {
    for (const element of document.querySelectorAll("main > *")) {
      const name = element.id === "answer" ? "answer" : element.querySelector("h2")?.textContent ?? "";
      if (element.tagName === "HEADER" ? false : !wanted.includes(name)) element.remove();
    }
    document.querySelector("header .bar")?.remove();
    if (bare) document.querySelectorAll(".scroll, .caption").forEach((part) => part.remove());
    document.querySelectorAll(".tracks").forEach((tracks) => { tracks.style.maxHeight = "none"; });
    document.querySelector("main").style.paddingBottom = "8px";
  }, { wanted, bare: Boolean(bare) });
  await page.waitForTimeout(200);
  const file = join(options.out, picture);
  await page.locator("main").screenshot({ path: file });
  await context.close();
  console.log(`${picture}: ${(statSync(file).size / 1024).toFixed(0)} kB`);
}
await browser.close();
