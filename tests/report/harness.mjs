// What both tests of pages share: options, a browser, pages that note what they ask for and what goes wrong, tests that
// are counted, and what holds for every page.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

export const options = Object.fromEntries(
  process.argv.slice(2).reduce((pairs, word, i, all) => (word.startsWith("--") ? [...pairs, [word.slice(2), all[i + 1] ?? ""]] : pairs), []),
);
const require = createRequire(join(resolve(options.modules), "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
mkdirSync(options.out, { recursive: true });

export const browser = await chromium.launch({ executablePath: options.chromium, args: ["--no-sandbox"] });
let failures = 0;

// A test, and the end of the pages that it opened.
export async function test(name, body) {
  try {
    await body();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failures;
    console.log(`FAILED  ${name}\n${error.stack ?? error}`);
  }
  for (const context of browser.contexts()) await context.close();
}

// A page with what it asked for and what it said; `ready`: what it waits for besides the page's own word.
export async function openPage(url, { width = 1280, height = 900, theme = "light", offline = false, ready = () => true } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, offline, hasTouch: width < 600,
    isMobile: width < 600, deviceScaleFactor: 1, acceptDownloads: true });
  const page = await context.newPage();
  const asked = [];
  const said = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) said.push(message.text()); });
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("dialog", (dialog) => { said.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
  const before = Date.now();
  await page.goto(url);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true");
  await page.waitForFunction(ready);
  return { page, asked, said, seconds: (Date.now() - before) / 1000 };
}

export const section = (page, title) => page.locator("section", { has: page.getByRole("heading", { name: title, exact: true }) });

// In the page, past a policy that lets no script in that is not the page's own.
async function evaluated(page, expression) {
  const client = await page.context().newCDPSession(page);
  const out = await client.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  assert.equal(out.exceptionDetails, undefined);
  await client.detach();
  return out.result.value;
}

export async function accessible(page) {
  await evaluated(page, `${axe}; undefined`);
  const faults = await evaluated(page, `axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
    .filter((fault) => ["serious", "critical"].includes(fault.impact))
    .map((fault) => fault.id + ": " + fault.nodes.map((node) => node.html).slice(0, 3).join(" | ")))`);
  assert.deepEqual(faults, []);
}

// Nothing scrolls sideways but what has a bar of its own, no text of a chart is cut off, and no two texts of one chart's
// row overlap.
export async function fits(page) {
  assert.deepEqual(await page.evaluate(() => {
    const faults = [];
    const room = document.documentElement.clientWidth;
    const wide = document.documentElement.scrollWidth - room;
    if (wide > 0) faults.push(`${wide} px too wide`);
    for (const element of document.querySelectorAll("main *")) {
      if (element.closest(".scroll, pre, svg, .paths") || element.closest("details:not([open])")) continue;
      const box = element.getBoundingClientRect();
      if (box.width > 0 && (box.right > room + 1 || box.left < -1)) faults.push(`${element.tagName}.${element.className}: ${box.left} to ${box.right}`);
    }
    for (const svg of document.querySelectorAll(".chart > svg")) {
      const outer = svg.closest("section, .answers, main").getBoundingClientRect();
      for (const text of svg.querySelectorAll("text")) {
        const box = text.getBoundingClientRect();
        if (box.width > 0 && (box.left < outer.left - 0.5 || box.right > outer.right + 0.5))
          faults.push(`cut off: ${text.textContent} in ${svg.parentElement.getAttribute("aria-label")}`);
      }
    }
    return faults;
  }), []);
}

// On paper: light, without controls, with everything that a reader of a screen may open or scroll to.
export async function prints(page) {
  const size = page.viewportSize();
  await page.setViewportSize({ width: 718, height: 1000 });  // A4 with its margins
  await page.emulateMedia({ media: "print" });
  await page.evaluate(() => window.dispatchEvent(new Event("beforeprint")));
  assert.deepEqual(await page.evaluate(() => {
    const shown = (element) => element.checkVisibility();
    const faults = [...document.querySelectorAll("button, select, input, textarea")].filter((element) => shown(element) && !element.closest("thead"))
      .map((element) => `a control is printed: ${element.outerHTML.slice(0, 90)}`);
    if (document.documentElement.dataset.theme !== "light") faults.push("paper is dark");
    for (const warnings of document.querySelectorAll("details.warnings")) if (!warnings.open) faults.push("warnings are closed");
    for (const scroll of document.querySelectorAll(".scroll, .tracks"))
      if (shown(scroll) && (scroll.scrollHeight > scroll.clientHeight + 1 || scroll.scrollWidth > scroll.clientWidth + 1)) faults.push(`cut off: ${scroll.getAttribute("aria-label") ?? scroll.className}`);
    return faults;
  }), []);
  await page.evaluate(() => window.dispatchEvent(new Event("afterprint")));
  await page.emulateMedia({ media: "screen" });
  await page.setViewportSize(size);
}

export async function finish() {
  await browser.close();
  console.log(failures === 0 ? "all is well" : `${failures} failed`);
  process.exit(failures === 0 ? 0 : 1);
}
