// Opens the page of `moesim serve` in Chromium: it asks nobody but its server, shows the numbers of the command line, follows
// what is moved, is shared as an address and taken away as a file. Pictures are left in --out; how long an answer takes is
// printed, not judged.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { accessible, finish, fits, openPage, options, prints, section, test } from "./harness.mjs";

const server = spawn(options.moesim, ["serve", "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
const ended = new Promise((done) => server.on("exit", done));
const first = await new Promise((found) => createInterface({ input: server.stdout }).once("line", found));
const url = first.match(/http:\/\/\S+/)[0];

// A machine that is busy otherwise answers late.
const kPatience = 180000;

const mark = (page, name) => page.evaluate((key) => Number(document.documentElement.dataset[key] ?? 0), name);
// Waits until an answer came after the one of a number.
const answeredAfter = (page, count) => page.waitForFunction((n) => Number(document.documentElement.dataset.answered ?? 0) > n, count, { timeout: kPatience });

// Does something, and waits for an answer that came after it.
async function answered(page, act) {
  const count = await mark(page, "answered");
  await act();
  await answeredAfter(page, count);
}
async function press(page, label, key) {
  await page.getByLabel(label, { exact: true }).focus();
  await page.keyboard.press(key);
}
async function enter(page, label, text) {
  await page.getByLabel(label, { exact: true }).fill(text);
  await page.getByLabel(label, { exact: true }).blur();
}

const open = (fragment = "", shape = {}) => openPage(url + fragment, shape);

// Until both an answer and where the winner changes stand there. What lies far below the screen is drawn when it is
// scrolled to.
async function settled(page) {
  await answeredAfter(page, 0);
  await page.waitForFunction(() => document.querySelector("#changes section"), null, { timeout: kPatience });
  await page.locator("#changes").scrollIntoViewIfNeeded();
  await page.waitForFunction(() => document.querySelector("#changes svg") && document.querySelector("#results svg"), null, { timeout: kPatience });
  await page.evaluate(() => scrollTo(0, 0));
}

// The words of a command line as a shell splits them.
const words = (line) => [...line.matchAll(/'((?:[^']|'\\'')*)'|(\S+)/g)].map((m) => m[2] ?? m[1].replace(/'\\''/g, "'"));
const answerOf = (command) => {
  const [program, ...rest] = words(command);
  assert.equal(program, "moesim");
  return JSON.parse(execFileSync(options.moesim, [...rest, "--format", "json", "--quiet"], { encoding: "utf8", maxBuffer: 1 << 28 }));
};

// The table of all numbers is that of a result.
async function shows(page, result) {
  const largest = Math.max(...result.scenarios.map((s) => s.time_us.high));
  const factor = largest >= 10e6 ? 1e-6 : largest >= 10e3 ? 1e-3 : 1;
  const rows = await page.locator("#results section").first().locator("tbody tr").allTextContents();
  assert.equal(rows.length, result.scenarios.length);
  for (const s of result.scenarios)
    assert.ok(rows.some((row) => row.startsWith(s.dispatcher) && row.includes((s.time_us.value * factor).toFixed(1))), s.dispatcher);
  assert.ok((await page.locator("#results .answer").textContent()).includes(result.answer));
}

await test("it asks its own server alone, nothing is wrong, and no other script runs", async () => {
  const { page, asked, said } = await open();
  await settled(page);
  assert.deepEqual(asked.filter((one) => !one.startsWith(url) && !one.startsWith("data:")), []);
  assert.deepEqual(said, []);
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.intruder = true";
    document.body.append(script);
    const picture = document.createElement("div");
    picture.innerHTML = `<img src=x onerror="window.intruder = true">`;
    document.body.append(picture);
  });
  await page.waitForTimeout(200);
  assert.equal(await page.evaluate(() => globalThis.intruder), undefined);
});

await test("the numbers are those of the command line that it shows", async () => {
  const { page } = await open("#parallel.ep=4&routing=zipf%3A1.2&cluster.nic.bandwidth=25GBps&topk=4");
  await settled(page);
  const command = await page.locator("#command").textContent();
  assert.ok(command.includes("--ep 4") && command.includes("--topk 4") && command.includes("25GBps"), command);
  await shows(page, answerOf(command));
});

await test("the command stands at the top, and the question of a training above the answers", async () => {
  for (const width of [1280, 390]) {
    const { page } = await open("", { width });
    await settled(page);
    const top = async (selector) => (await page.locator(selector).first().boundingBox()).y;
    assert.ok(await top("#command") < 250, `${await top("#command")}`);
    assert.ok(await top("#command") < await top("#question"));
    assert.ok(await top("section:has(h2:text-is('A whole training'))") < await top("#results"));
    if (width === 390) assert.ok(await top("#results") < await top("#question"), "the answer above the sliders");
  }
});

await test("what is moved is followed: answer, address, and where the winner changes", async () => {
  const { page, said } = await open();
  await settled(page);
  const before = await page.locator("#results .answer").textContent();
  const count = await mark(page, "answered");
  const ep = page.getByLabel("EP", { exact: true });
  await ep.focus();
  await page.keyboard.press("ArrowLeft");
  await answeredAfter(page, count);
  assert.match(page.url(), /#.*parallel\.ep=16/);
  await page.waitForFunction(() => document.documentElement.dataset.changes === "parallel.ep");
  assert.match(await page.locator("#changes h2").textContent(), /EP/);
  assert.notEqual(await page.locator("#results .answer").textContent(), before);
  await shows(page, answerOf(await page.locator("#command").textContent()));
  await answered(page, () => page.getByLabel("a training step").check());
  assert.ok(await page.getByLabel("PP", { exact: true }).isVisible());
  await shows(page, answerOf(await page.locator("#command").textContent()));
  const before_more = await mark(page, "answered");
  await page.locator("summary", { hasText: "More fields" }).click();
  await enter(page, "One a line, path=value", "training.sharding=zero1\ntraining.fp8_attention=true");
  await answeredAfter(page, before_more);
  const command = await page.locator("#command").textContent();
  assert.ok(command.includes("fp8_attention"), command);
  await shows(page, answerOf(command));
  assert.deepEqual(said, []);
});

await test("what is not said is the server's to fill, as for the command line", async () => {
  const { page } = await open();
  await settled(page);
  assert.match(await page.locator("#results .answer").textContent(), /^Run /, "the first question has a plan that fits");
  const command = await page.locator("#command").textContent();
  assert.equal(command, "moesim compare --model gpt-oss-20b --cluster dgx-h100x4");
  await shows(page, answerOf(command));
  assert.match(await page.locator(".slider output").filter({ hasText: "(chosen)" }).first().textContent(), /32 \(chosen\)/);
  // A plan that was searched stays while something else is moved, and the command says it.
  await answered(page, () => page.getByLabel("a training step").check());
  await answered(page, () => press(page, "Top-k", "ArrowRight"));
  const kept = await page.locator("#command").textContent();
  assert.ok(kept.includes("--scope step") && kept.includes("--topk 1") && kept.includes("--pp "), kept);
  await shows(page, answerOf(kept));
});

await test("a run that was measured is part of the question; one that is not explained is shown as such", async () => {
  const { page, said } = await open("#model=mixtral-8x7b&scope=step&measured=alltoall%3D18s&tolerance=5%25");
  await answeredAfter(page, 0);
  const command = await page.locator("#command").textContent();
  assert.ok(command.endsWith("--measured alltoall=18s --tolerance 5%"), command);
  const result = answerOf(command);
  assert.equal(result.recommendation.tolerance, 0.05);
  await shows(page, result);
  assert.match(await page.locator("#anchor").textContent(), /alltoall takes 18\.00 s; the forecast was/);
  await answered(page, () => enter(page, "Measured", "alltoall=2s"));
  assert.match(await page.locator("#results .answer").textContent(), /cannot be explained/);
  assert.ok(!(await page.locator("#results").textContent()).includes("P(fastest)"));
  assert.deepEqual(said, []);
  await accessible(page);
});

await test("a training is planned where its tokens are said, and again when the question is another one", async () => {
  const { page, said, asked } = await open("#model=mixtral-8x7b&cluster=dgx-h100xN&nodes=4&plan.tokens=100B&plan.deadline=60d");
  await settled(page);
  await page.waitForFunction(() => document.documentElement.dataset.planned, null, { timeout: kPatience });
  // The plan of the command line, or that of a first look and what was cut.
  const cut = await page.locator("#cut").count() > 0;
  if (cut) assert.match(await page.locator("#cut").textContent(), /up to [\d.]+ % faster may exist.*was cut: the answer takes more than/);
  const plan = JSON.parse(execFileSync(options.moesim, ["plan", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--tokens", "100B",
    "--deadline", "60d", ...(cut ? ["--most", "100", "--draws", "8"] : []), "--format", "json", "--quiet"], { encoding: "utf8", maxBuffer: 1 << 28 }));
  assert.ok((await page.locator("#plans .answer").textContent()).startsWith(plan.answer), plan.answer);
  // What the plan searches is no new question of it.
  const plans = () => asked.filter((one) => one.endsWith("/plan")).length;
  const before = plans();
  await answered(page, () => press(page, "EP", "ArrowLeft"));
  assert.equal(plans(), before);
  await enter(page, "Tokens", "200B");
  await page.waitForFunction(() => document.documentElement.dataset.planned.includes("200B"), null, { timeout: kPatience });
  assert.equal(plans(), before + 2);
  assert.match(page.url(), /plan\.tokens=200B/);
  await enter(page, "Deadline", "soon");
  await page.waitForFunction(() => document.querySelector("#plans .problem"), null, { timeout: kPatience });
  assert.match(await page.locator("#plans .problem").textContent(), /--deadline: found 'soon'/);
  assert.deepEqual(said.filter((one) => !one.includes("Failed to load resource")), []);
});

await test("a link brings the same question, and going back the one before", async () => {
  const { page } = await open();
  await settled(page);
  await page.getByLabel("Model", { exact: true }).selectOption("deepseek-v3");
  await page.getByLabel("Nodes or racks").fill("8");
  await press(page, "Top-k", "ArrowRight");
  await page.waitForFunction(() => document.documentElement.dataset.changes === "topk", null, { timeout: kPatience });
  const other = await open(new URL(page.url()).hash);
  await settled(other.page);
  assert.equal(await other.page.locator("#command").textContent(), await page.locator("#command").textContent());
  assert.equal(await other.page.getByLabel("Model", { exact: true }).inputValue(), "deepseek-v3");
  await answered(other.page, () => other.page.evaluate(() => { location.hash = "#topk=1"; }));
  assert.equal(await other.page.getByLabel("Model", { exact: true }).inputValue(), "gpt-oss-20b");
});

await test("what moesim refuses is said in its words, and the last answer fades", async () => {
  const { page } = await open();
  await settled(page);
  await press(page, "EP", "End");
  await page.waitForFunction(() => document.querySelector(".answers > .problem").textContent !== "");
  const why = await page.locator(".answers > .problem").textContent();
  assert.match(why, /found .* expected /);
  assert.ok(await page.locator("#results").evaluate((element) => element.classList.contains("stale")));
  const count = await mark(page, "answered");
  for (let i = 0; i < 5; ++i) await page.keyboard.press("ArrowLeft");  // from 256 to 8
  await answeredAfter(page, count);
  await page.waitForFunction(() => document.querySelector(".answers > .problem").textContent === "", null, { timeout: kPatience });
  assert.equal(await page.locator(".answers > .problem").textContent(), "");
  await page.locator("summary", { hasText: "More fields" }).click();
  await enter(page, "One a line, path=value", "training.no_such=1");
  assert.match(await page.locator(".question-form .problem").textContent(), /training\.no_such/);
});

await test("a named dispatcher that cannot run here is left out with its reason, and the others are answered", async () => {
  const { page } = await open("#parallel.ep=1&dispatcher=allgather,alltoall,flex-deepep,nccl-ep");
  await settled(page);
  assert.equal(await page.locator(".answers > .problem").textContent(), "");
  assert.match(await page.locator("#without").textContent(), /^Left out: flex-deepep: it needs more than one rank.*; nccl-ep: /);
  const command = await page.locator("#command").textContent();
  assert.ok(command.includes("--dispatcher allgather,alltoall") && !command.includes("flex-deepep"), command);
  await shows(page, answerOf(command));
  await answered(page, () => press(page, "EP", "ArrowRight"));
  assert.equal(await page.locator("#without").textContent(), "");
  assert.ok((await page.locator("#command").textContent()).includes("flex-deepep"));
});

await test("a hostile link is a text", async () => {
  const evil = encodeURIComponent(`<img src=x onerror="window.intruder = true"></script><script>window.intruder = true</script>`);
  for (const path of ["model", "cluster", "routing", "dispatcher", "parallel.ep", "nodes", "training.recompute", "__proto__.x", "constructor"]) {
    const { page, asked, said } = await open(`#${path}=${evil}`);
    await page.waitForFunction(() => Number(document.documentElement.dataset.refused ?? 0) + Number(document.documentElement.dataset.answered ?? 0) > 0);
    assert.equal(await page.evaluate(() => globalThis.intruder), undefined);
    assert.equal(await page.evaluate(() => ({}).x), undefined);
    assert.deepEqual(asked.filter((one) => !one.startsWith(url) && !one.startsWith("data:")), []);
    // The browser says of every refusal that it was one.
    assert.deepEqual(said.filter((one) => !one.includes("Failed to load resource")), [], path);
  }
});

await test("taken away: the scenario and the report answer the same", async () => {
  const { page } = await open("#routing=zipf%3A0.8");
  await settled(page);
  const shown = answerOf(await page.locator("#command").textContent());
  const saved = async (name) => {
    const [download] = await Promise.all([page.waitForEvent("download", { timeout: kPatience }), page.getByRole("button", { name }).click()]);
    const file = join(resolve(options.out), download.suggestedFilename());
    await download.saveAs(file);
    return file;
  };
  const scenario = await saved("save the complete scenario");
  const again = JSON.parse(execFileSync(options.moesim, ["compare", scenario, "--format", "json", "--quiet"], { encoding: "utf8", maxBuffer: 1 << 28 }));
  assert.deepEqual(again.scenarios, shown.scenarios);
  const report = readFileSync(await saved("save the answer as a page"), "utf8");
  const data = JSON.parse(report.match(/id="moesim-data">([^<]*)</)[1]);
  assert.equal(data.result.answer, shown.answer);
  assert.ok(data.timelines.length > 0);
});

for (const theme of ["light", "dark"])
  for (const width of [1280, 390])
    await test(`accessible, nothing cut off, printed without controls, ${width} px, ${theme}`, async () => {
      const { page, said } = await open("#routing=zipf%3A0.8", { width, theme });
      await settled(page);
      await page.waitForTimeout(300);
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
      await fits(page);
      await page.screenshot({ path: join(options.out, `live-${width}-${theme}.png`), fullPage: true });
      for (const name of ["More fields", "Dispatchers"]) await page.locator("summary", { hasText: name }).first().click();
      await accessible(page);
      await prints(page);
      assert.deepEqual(said, []);
    });

await test("how long an answer takes", async () => {
  const { page } = await open();
  await settled(page);
  const times = { answerMs: [], drawMs: [], seenMs: [], changesMs: [] };
  const slider = page.getByLabel("NIC bandwidth", { exact: true });
  await slider.focus();
  for (let i = 0; i < 12; ++i) {
    const count = await mark(page, "answered");
    await page.evaluate(() => { document.documentElement.dataset.changesMs = ""; document.documentElement.dataset.seenMs = ""; });
    await page.keyboard.press("ArrowRight");
    await answeredAfter(page, count);
    await page.waitForFunction(() => document.documentElement.dataset.changesMs !== "" && document.documentElement.dataset.seenMs !== "", null, { timeout: kPatience });
    for (const name of Object.keys(times)) times[name].push(await mark(page, name));
  }
  for (const [name, all] of Object.entries(times)) {
    all.sort((a, b) => a - b);
    console.log(`        ${name}: median ${all[all.length >> 1]} ms, least ${all[0]} ms, most ${all[all.length - 1]} ms`);
  }
});

await test("when the server ends, the page says so, and the server ended well", async () => {
  const { page } = await open();
  await settled(page);
  server.kill("SIGTERM");
  assert.equal(await ended, 0);
  await press(page, "EP", "ArrowLeft");
  await page.waitForFunction(() => document.querySelector(".answers > .problem").textContent.includes("the server does not answer"));
});

server.kill("SIGKILL");
await finish();
