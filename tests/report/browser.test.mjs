// Opens reports in Chromium: nothing comes from a network, the numbers are those of the JSON result, everything can be
// sorted, filtered, zoomed and read with the keyboard, in both themes and on a phone. Pictures are left in --out. With
// `--all 1` every report is looked at in every theme and width, with `--measure 1` pages are timed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { accessible, browser, finish, fits, openPage, options, prints, section, test } from "./harness.mjs";

const samples = join(options.source, "traces/samples/synthetic");
const sample = join(samples, "pp2_tp1_ep4_expn8_dp8_nl8_hs4096_sl1024");
const kMegabyte = 1024 * 1024;

// A report and the JSON result of the same command.
function make(name, words) {
  const file = join(resolve(options.out), `${name}.html`);
  const out = execFileSync(options.moesim, [...words, "--report", file, "--format", "json", "--quiet"], {
    encoding: "utf8", maxBuffer: 256 * kMegabyte, cwd: options.out });
  return { name, file, out, result: out.trimStart().startsWith("{") ? JSON.parse(out) : null, size: statSync(file).size };
}

const compare = ["compare", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x1", "--ep", "8", "--dispatcher",
  "allgather,alltoall,flex-deepep,flex-hybridep", "--routing", "zipf:1.2"];
const scenario = join(options.source, "docs/examples/scenario.json");
const small = ["--draws", "8"];
// Made up: the shape of a table of published steps, not a measurement.
const published = join(resolve(options.out), "steps.csv");
writeFileSync(published,
  "gpu,gpus,model,framework,precision,gbs,mbs,seq_len,tp,pp,cp,vp,ep,etp,step_time_s,tokens_per_s_per_gpu,source\n" +
  [2, 4, 9].map((seconds, i) => `H100-SXM5-80GB,${8 << i},Mixtral 8x7B,Megatron-Core,bf16,${64 << i},1,4096,1,1,1,1,8,1,${seconds},,made up`).join("\n") + "\n");
const decided = join(resolve(options.out), "decisions.csv");
const arm = (seconds, backend, id) =>
  `H100-SXM5-80GB,8,8,olmoe,Megatron-Core,BF16,64,1,4096,1,1,1,8,1,${seconds},here,${backend},none,${id}\n`;
writeFileSync(decided,
  "gpu,gpus,gpus_per_node,model,framework,precision,gbs,mbs,seq_len,tp,pp,cp,ep,etp,step_time_s,source,backend,recompute,decision_id\n" +
  arm(6, "nccl", "a") + arm(7, "deepep", "a") + arm(6, "nccl", "b") + arm(5, "deepep", "b"));
// A model as Hugging Face describes it, under a name that no list has.
const own = join(resolve(options.out), "our-model.json");
writeFileSync(own, JSON.stringify({ model_type: "mixtral", hidden_size: 2048, intermediate_size: 4096, num_local_experts: 16, num_experts_per_tok: 2,
  num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 4, vocab_size: 32000, max_position_embeddings: 4096 }));
const reports = {
  compare: make("compare", compare),
  compareStep: make("compare-step", ["compare", "--scope", "step", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x4", "--ep", "8",
    "--pp", "2", "--microbatches", "16", "--dispatcher", "allgather,alltoall", "--routing", "zipf:0.8", ...small]),
  compareScript: make("compare-script", ["compare", join(options.source, "tests/fuzz/corpus/training_job/megatron.sh"), "--scope", "step", ...small]),
  compareOwn: make("compare-own", ["compare", "--model", own, "--cluster", `{"base": "h100x4", "nic": {"bandwidth": "25GBps"}}`, "--ep", "8", ...small]),
  whatifHardware: make("whatif-hardware", ["whatif", scenario, "--each", "--set", "cluster.nic.bandwidth=100GBps", "--set", "cluster.gpu.flops=x2",
    "--set", "parallel.micro_batch=16", ...small]),
  sweepHardware: make("sweep-hardware", ["sweep", scenario, "--grid", "cluster.nic.bandwidth=25GBps,50GBps,100GBps", "--grid", "parallel.micro_batch=1,4,16,64",
    ...small, "--out", join(resolve(options.out), "sweep-hardware.csv"), "--overwrite"]),
  whatifSet: make("whatif-set", ["whatif", scenario, "--set", "parallel.ep=4", ...small]),
  whatifEach: make("whatif-each", ["whatif", scenario, "--set", "parallel.ep=4", "--set", "routing=balanced", "--each", ...small]),
  whatifCrossover: make("whatif-crossover", ["whatif", join(options.source, "docs/examples/gallery_crossover.json"),
    "--crossover", "topk=1..16", "--between", "allgather,alltoall", ...small]),
  whatifMap: make("whatif-map", ["whatif", scenario, "--map", "topk=1..8", "parallel.ep=1,2,4,8", ...small]),
  whatifSensitivity: make("whatif-sensitivity", ["whatif", scenario, "--sensitivity", ...small]),
  whatifBest: make("whatif-best", ["whatif", scenario, "--best", "parallel,dispatcher", "--most", "60"]),
  plan: make("plan", ["plan", "--model", "qwen3-30b-a3b", "--tokens", "1T", "--clusters", "h100,gb200,dgx-h100x1", "--gpus", "60", "--most", "40",
    "--deadline", "90d", "--budget", "2M$", "--draws", "4"]),
  sweep: make("sweep", ["sweep", scenario, "--grid", "parallel.ep=1,2,4,8", "--grid", "topk=1,2,4", "--grid", "routing.gini=0,0.3,0.6",
    "--breakdown", ...small, "--out", join(resolve(options.out), "sweep.csv"), "--overwrite"]),
  decisions: make("validate-decisions", ["validate", "--decisions", decided, "--draws", "4"]),
  training: make("validate-training", ["validate", "--training", published, "--draws", "2"]),
  replay: make("replay", ["replay", join(sample, "scaling"), "--cluster", "echo-h800x2", "--microbatches", "4"]),
  validate: make("validate", ["validate", "--forecast", join(sample, "scaling"), "--measured", join(sample, "realistic")]),
  validateAll: make("validate-all", ["validate", "--all", samples]),
};

const pictured = () => document.querySelector("main svg, main canvas");
const open = (report, shape = {}) => openPage(pathToFileURL(report.file).href, { ...shape, offline: true, ready: pictured });

for (const report of Object.values(reports)) {
  await test(`${report.name}: nothing but the file is asked for, nothing is wrong`, async () => {
    const { page, asked, said } = await open(report);
    await page.mouse.wheel(0, 20000);
    assert.deepEqual(asked.filter((url) => !url.startsWith("file:") && !url.startsWith("blob:")), []);
    assert.equal(asked.filter((url) => url.startsWith("file:")).length, 1);
    assert.deepEqual(said, []);
    assert.ok(report.size < 5 * kMegabyte, `${report.size} bytes`);
  });

  // Every theme at every width for one report of each kind of picture; the others, each of both once.
  const thorough = options.all !== undefined || report === reports.compare;
  for (const theme of ["light", "dark"])
    for (const width of [1280, 390])
      if (thorough || (theme === "light") === (width === 1280)) await test(`${report.name}: accessible, nothing cut off, printed in full, ${width} px, ${theme}`, async () => {
        const { page, said } = await open(report, { width, theme });
        assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
        await fits(page);
        await accessible(page);
        if (theme === "dark") await prints(page);
        assert.deepEqual(said, []);
        await page.screenshot({ path: join(options.out, `${report.name}-${width}-${theme}.png`), fullPage: true });
      });
}

for (const report of Object.values(reports))
  await test(`${report.name}: has a title of its own, and one unit a column`, async () => {
    const { page } = await open(report);
    const heading = await page.locator("h1").textContent();
    const verb = JSON.parse(await page.locator("#moesim-data").textContent()).verb;
    assert.equal(await page.title(), `${heading} - moesim ${verb}`);
    assert.ok(readFileSync(report.file, "utf8").includes(`<title>moesim ${verb}</title>`), "before its script runs");
    // What a person reads: without the command and the inputs.
    const read = await page.evaluate(() => [...document.querySelectorAll("main :is(h1, h2, p, li, th, td, dt, dd, text, summary)")].map((one) => one.textContent));
    for (const text of read)
      for (const wrong of [/\[object/, /undefined/, /\bNaN\b/, /(?<![\w.,-])\d{9,}(?![\w,-])/]) assert.doesNotMatch(text, wrong);
    const columns = await page.evaluate(() => [...document.querySelectorAll("main table")].flatMap((table) =>
      [...table.querySelectorAll("thead th")].map((head, i) => ({ head: head.textContent,
        cells: [...table.querySelectorAll("tbody tr")].map((row) => row.children[i]?.textContent ?? "") }))));
    for (const kind of ["ps|ns|us|ms|s", "B|kB|MB|GB|TB"])
      for (const { head, cells } of columns) {
        const units = new Set(cells.map((cell) => cell.match(new RegExp(`^[-+−]?[\\d.,]+ (${kind})$`))?.[1]).filter((unit) => unit));
        assert.ok(units.size <= 1, `${head}: ${[...units].join(" and ")}`);
      }
  });

await test("compare: a script, an own model and a changed machine are named", async () => {
  const heading = async (report) => {
    const { page } = await open(report);
    const text = await page.locator("h1").textContent();
    return text;
  };
  assert.match(await heading(reports.compareOwn), /^our-model on dgx-h100x4$/);
  const script = await heading(reports.compareScript);
  assert.equal(script, `${reports.compareScript.result.model.name} on ${reports.compareScript.result.inputs.scenario.cluster.name ?? reports.compareScript.result.inputs.scenario.cluster}`);
});

await test("compare: the map around the answer names values that turn it", async () => {
  const { page } = await open(reports.compareOwn);
  const { around } = JSON.parse(await page.locator("#moesim-data").textContent()).result;
  assert.ok(around.length >= 6, JSON.stringify(around));
  const rows = await section(page, "What would turn it").locator("tbody tr").allTextContents();
  assert.equal(rows.length, around.length);
  const fastest = (path, value) => {
    const said = ["compare", ...reports.compareOwn.result.inputs.command.slice(1).filter((word, i, all) => !["--report", "--format", "json", "--quiet"].includes(word) && all[i - 1] !== "--report" && word !== "--draws" && all[i - 1] !== "--draws")];
    const set = path === "routing.zipf" ? ["--routing", `zipf:${value}`] : ["--set", `${path}=${value.replaceAll(" ", "")}`];
    const kept = path === "parallel.ep" ? said.filter((word, i) => word !== "--ep" && said[i - 1] !== "--ep") : said;
    return JSON.parse(execFileSync(options.moesim, [...kept, ...set, "--draws", "0", "--format", "json", "--quiet"], { encoding: "utf8", cwd: options.out, maxBuffer: 256 * kMegabyte })).winner.dispatcher;
  };
  const now = fastest("parallel.seq", around.find((one) => one.path === "parallel.seq").now);
  let turned = 0;
  for (const one of around)
    for (const [side, end] of [["below", one.from], ["above", one.to]]) {
      if (one[side]) ++turned;
      if (one[side]) assert.equal(fastest(one.path, one[side].value), one[side].dispatcher, `${one.path} ${side}`);
      else if (end !== one.now) assert.equal(fastest(one.path, end), now, `${one.path} ${side}`);
    }
  assert.ok(turned > 0, "something turns it");
});

await test("sweep: what does not fit is in no front, and values of paths have their units", async () => {
  const { page } = await open(reports.sweepHardware);
  const { columns, rows } = JSON.parse(await page.locator("#moesim-data").textContent()).result;
  const column = (name) => columns.indexOf(name);
  assert.ok(rows.some((row) => row[column("fits")] === false) && rows.some((row) => row[column("fits")] === true), "some fit");
  const points = rows.filter((row) => row[column("fits")] === true).map((row) => [row[column("peak_memory_bytes.max")], row[column("tokens_per_s_per_gpu")]]);
  points.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  let most = -Infinity;
  const front = points.filter(([, rate]) => rate > most && ((most = rate), true));
  const key = await section(page, "Trade-offs").locator(".key").textContent();
  assert.ok(key.includes(`the line joins the ${front.length} that nothing beats in both and that fit; `), key);
  assert.equal(await section(page, "Trade-offs").locator(`.chart svg > g[aria-label="dot"]`).last().locator("path, circle").count(), front.length);
  assert.match((await section(page, "Rows").locator("tbody tr").first().textContent()), /25\.00 GB\/s/);
});

await test("compare: the numbers are those of the JSON result", async () => {
  const { page } = await open(reports.compare);
  const { result } = reports.compare;
  const embedded = JSON.parse(await page.locator("#moesim-data").textContent());
  for (const scenario of result.scenarios) {
    const same = embedded.result.scenarios.find((one) => one.dispatcher === scenario.dispatcher);
    assert.deepEqual(same.time_us, scenario.time_us);
    assert.deepEqual(same.breakdown_us, scenario.breakdown_us);
    const sum = Object.values(same.breakdown_us).reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum / same.time_us.value - 1) < 1e-6, "the breakdown adds up");
    const matrix = embedded.matrices.find((one) => one.title === scenario.dispatcher);
    const sent = matrix.bytes.reduce((a, b) => a + b, 0) / matrix.ranks;
    assert.ok(Math.abs(sent - scenario.tx_bytes_per_rank.mean) <= 1e-6 * sent + matrix.ranks, "the matrix adds up");
  }
  const rows = await page.locator("section").first().locator("tbody tr").allTextContents();
  assert.equal(rows.length, result.scenarios.length);
  const largest = Math.max(...result.scenarios.map((s) => s.time_us.high));
  const factor = largest >= 10e3 ? 1e-3 : 1;
  for (const s of result.scenarios)
    assert.ok(rows.some((row) => row.includes(s.dispatcher) && row.includes((s.time_us.value * factor).toFixed(1))), s.dispatcher);
  const answer = await page.locator("#answer").textContent();
  assert.ok(answer.startsWith(result.answer), answer);
  assert.ok(answer.includes(result.because));
  assert.ok((await page.locator("pre.command").textContent()).includes("--routing zipf:1.2"));
});

await test("compare: sorts, filters, orders and hides", async () => {
  const { page } = await open(reports.compare);
  const section = page.locator("section").first();
  const first = () => section.locator("tbody tr").first().locator("th").textContent();
  const names = reports.compare.result.scenarios.map((s) => s.dispatcher);
  const byTime = [...reports.compare.result.scenarios].sort((a, b) => a.time_us.value - b.time_us.value);
  assert.ok((await first()).startsWith(byTime[0].dispatcher));
  await section.locator("thead button").nth(1).click();  // the same column again: descending
  assert.ok((await first()).startsWith(byTime[byTime.length - 1].dispatcher));
  assert.equal(await section.locator("thead th").nth(1).getAttribute("aria-sort"), "descending");
  await section.locator("thead button").nth(0).focus();
  await page.keyboard.press("Enter");
  assert.ok((await first()).startsWith([...names].sort((a, b) => a.localeCompare(b))[0]));
  const bars = () => section.locator(".chart svg").first().evaluate((svg) => svg.outerHTML);
  const all = await bars();
  await section.locator("fieldset input").first().uncheck();
  assert.notEqual(await bars(), all);
  await section.locator("fieldset input").first().check();
  assert.equal((await bars()).length, all.length);
});

await test("replay: the timeline zooms, moves and reads slices with mouse and keys", async () => {
  const { page, said } = await open(reports.replay);
  const { result } = reports.replay;
  const answer = await page.locator("#answer").textContent();
  assert.ok(answer.includes((result.iteration_us.value * 1e-3).toFixed(1)), answer);
  const canvas = page.locator(".tracks canvas").nth(1);
  await canvas.scrollIntoViewIfNeeded();
  const shown = () => page.locator("#timeline-window").textContent();
  const whole = await shown();
  await page.getByRole("button", { name: "zoom in" }).click();
  const half = await shown();
  assert.notEqual(half, whole);
  await canvas.focus();
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await shown(), half);
  await page.keyboard.press("Home");
  assert.equal(await shown(), whole);
  const box = await canvas.boundingBox();
  await page.keyboard.down("Control");
  await page.mouse.move(box.x + box.width / 2, box.y + 30);
  await page.mouse.wheel(0, -300);
  await page.keyboard.up("Control");
  assert.notEqual(await shown(), whole);
  await page.keyboard.press("Home");
  await page.keyboard.press(".");
  const read = await page.locator(".timeline .readout").textContent();
  assert.match(read, /rank \d+, .* takes /);
  const picture = () => canvas.evaluate((element) => element.height);
  const high = await picture();
  await page.getByRole("searchbox", { name: "Ranks" }).fill("0-1");
  assert.ok((await picture()) < high);
  await page.getByRole("searchbox", { name: "Ranks" }).fill("x");
  assert.match(await page.locator(".problem").textContent(), /ranks are numbers/);
  assert.deepEqual(said, []);
});

await test("the theme is switched by its button, and paper is light", async () => {
  const { page } = await open(reports.compare, { theme: "dark" });
  const dark = await page.evaluate(() => getComputedStyle(document.body.parentElement).backgroundColor);
  await page.locator("#theme").click();
  const light = await page.evaluate(() => getComputedStyle(document.body.parentElement).backgroundColor);
  assert.notEqual(dark, light);
  await page.locator("#theme").click();
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.locator(".controls").first().isVisible(), false);
  await page.pdf({ path: join(options.out, "compare.pdf"), format: "A4" });
});

await test("validate: errors and intervals are those of the JSON result; both timelines are there", async () => {
  const { page } = await open(reports.validate);
  const { result } = reports.validate;
  const sign = result.iteration.error >= 0 ? "+" : "−";
  assert.ok((await page.locator("#answer").textContent()).includes(`${sign}${Math.abs(100 * result.iteration.error).toFixed(1)} %`));
  const rows = await page.locator("section").nth(1).locator("tbody tr").count();
  assert.equal(rows, 1 + Object.keys(result.components).length);
  const data = JSON.parse(await page.locator("#moesim-data").textContent());
  assert.deepEqual(data.timelines.map((one) => one.title), ["forecast", "measured"]);
  // The timeline ends where the iteration does.
  assert.ok(Math.abs(data.timelines[0].end_us / result.iteration.forecast_us - 1) < 1e-3);
  assert.ok(Math.abs(data.timelines[1].end_us / result.iteration.measured_us - 1) < 1e-3);
});

await test("compare --scope step: memory and parts are those of the JSON result", async () => {
  const { page } = await open(reports.compareStep);
  const { result } = reports.compareStep;
  const answer = await page.locator("#answer").textContent();
  assert.ok(answer.startsWith(result.answer), answer);
  assert.ok(answer.includes(result.because), answer);
  const limit = (result.scenarios[0].memory.limit_bytes * 1e-9).toPrecision(3);
  assert.ok((await section(page, "Memory").locator("svg").first().textContent()).includes(`limit ${limit} GB`));
  const rows = await section(page, "Time").locator("tbody tr").allTextContents();
  for (const s of result.scenarios)
    assert.ok(rows.some((row) => row.includes(s.dispatcher) && row.includes(`${(100 * s.mfu).toFixed(1)} %`)), s.dispatcher);
  // The pipeline has an axis of its own: it ends with the step, the layer does not.
  const data = JSON.parse(await page.locator("#moesim-data").textContent());
  const pipeline = data.timelines.filter((one) => one.of === "stage");
  assert.deepEqual(pipeline.map((one) => one.title).sort(), result.scenarios.map((s) => s.dispatcher).sort());
  assert.equal(await section(page, "Pipeline").locator("canvas").count(), 2);
  // The picture: a box per pass of the dispatcher that is shown, and the bubble of the JSON result.
  const [picture] = data.pipelines;
  assert.equal(picture.boxes.length, 2 * 2 * 16);
  const boxes = await section(page, "Pipeline").locator(`.chart g[aria-label="bar"]`).nth(2).locator("rect").count();
  assert.equal(boxes, picture.boxes.length);
  const shown = result.scenarios.find((s) => s.dispatcher === picture.title);
  assert.ok((await page.locator("#bubble").textContent()).includes(`${(100 * shown.breakdown_us.bubble / shown.time_us.value).toFixed(1)} % of the step`));
  await section(page, "Pipeline").getByLabel("Dispatcher").selectOption(result.scenarios.find((s) => s !== shown).dispatcher);
  assert.ok(!(await page.locator("#bubble").textContent()).includes(`${(100 * shown.breakdown_us.bubble / shown.time_us.value).toFixed(1)} % of the step`));
  await section(page, "Pipeline").locator("summary").click();
  await section(page, "Pipeline").locator(".tracks canvas").nth(1).focus();
  await page.keyboard.press(".");
  assert.match(await section(page, "Pipeline").locator(".readout").textContent(), /stage 0, passes: (forward|backward) \d+ takes /);
});

await test("whatif --set: the difference, its reason and the parts are those of the JSON result", async () => {
  const { page } = await open(reports.whatifSet);
  const { result } = reports.whatifSet;
  assert.equal(await page.locator("#answer p").first().textContent(), result.because);
  const rows = await section(page, "What moved").locator("tbody tr").allTextContents();
  assert.equal(rows.length, result.parts.length);
  for (const part of result.parts)
    assert.ok(rows.some((row) => row.startsWith(part.category.replace(/_/g, " ")) && row.includes((part.difference_us * 1e-3).toFixed(2))), part.category);
});

await test("whatif --each: as many changes as were asked for, the best marked", async () => {
  const { page } = await open(reports.whatifEach);
  const { ranking } = reports.whatifEach.result;
  const rows = page.locator("section").first().locator("tbody tr");
  assert.equal(await rows.count(), ranking.length);
  assert.ok((await rows.first().textContent()).startsWith(`${ranking[0].text} best`));
});

await test("whatif --crossover: every crossing is told, lines change between shares and times", async () => {
  const { page } = await open(reports.whatifCrossover);
  const { result } = reports.whatifCrossover;
  assert.ok(result.crossovers.length > 0, "the example crosses");
  const answer = await page.locator("#answer").textContent();
  assert.ok(answer.includes(result.answer), answer);
  for (const c of result.crossovers)
    assert.ok(["from", "at"].some((word) => answer.includes(`${c.to} ${word} ${c.above}`)), answer);
  const chart = () => page.locator(".chart").first().innerHTML();
  const before = await chart();
  await page.getByLabel("Show").selectOption("time");
  assert.notEqual(await chart(), before);
});

await test("whatif --map: counts are those of the JSON result, cells are read with the keyboard", async () => {
  const { page } = await open(reports.whatifMap);
  const { map } = reports.whatifMap.result;
  const known = map.filter((cell) => !cell.error);
  const wins = new Map();
  for (const cell of known) wins.set(cell.fastest, (wins.get(cell.fastest) ?? 0) + 1);
  const kinds = await page.locator(".kinds").textContent();
  for (const [name, count] of wins) assert.ok(kinds.includes(`${name} (${count})`), kinds);
  const canvas = page.locator("canvas").first();
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  const read = await page.locator(".readout").first().textContent();
  const cell = map.find((one) => one.topk === 2 && one["parallel.ep"] === 4);
  assert.ok(read.startsWith(`topk = 2, parallel.ep = 4: ${cell.fastest} is the fastest`), read);
  await page.getByLabel("Show").selectOption("probability");
  await page.waitForFunction(() => document.querySelector(".scale")?.textContent?.includes("%"));
});

await test("whatif --sensitivity and --best: the numbers of the JSON result", async () => {
  const sensitivity = await open(reports.whatifSensitivity);
  const all = reports.whatifSensitivity.result.sensitivity;
  assert.equal(await sensitivity.page.locator("section").first().locator("tbody tr").count(), all.length);
  assert.ok((await sensitivity.page.locator("#answer").textContent()).includes(all[0].what));
  const best = await open(reports.whatifBest);
  const plans = reports.whatifBest.result.best;
  const rows = await best.page.locator("section").first().locator("tbody tr").allTextContents();
  assert.equal(rows.length, plans.length);
  assert.ok(rows[0].includes(plans[0].forecast.tokens_per_s_per_gpu.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",")), rows[0]);
});

await test("plan: the answer, the plans, their groups and what they rest on are those of the JSON result", async () => {
  const { page } = await open(reports.plan);
  const { result } = reports.plan;
  const { plans } = result;
  assert.ok((await page.locator("#answer").textContent()).startsWith(result.answer));
  const usual = plans.filter((one) => !one.lower_precision);
  const rows = await section(page, "Cost against time").locator("tbody tr").allTextContents();
  assert.equal(rows.length, usual.length);
  usual.forEach((one, i) => {
    assert.ok(rows[i].startsWith(`${one.group}${one.cluster}`), rows[i]);
    for (const share of [one.deadline_probability, one.budget_probability, one.fits_probability]) assert.ok(rows[i].includes(share.toFixed(2)), rows[i]);
  });
  assert.equal(await section(page, "Cost against time").locator("svg circle").count(), usual.length);
  const beside = await section(page, "Paid, and no work").locator("tbody tr").allTextContents();
  usual.forEach((one, i) => assert.ok(beside[i].includes(`${(100 * one.goodput).toFixed(1)} %`) && beside[i].includes(`${one.idle_gpus}$`), beside[i]));
  assert.equal(await section(page, "Upgrades").locator("tbody tr").count(), result.upgrades.length);
  const sources = await section(page, "What it rests on").locator("tbody tr").allTextContents();
  assert.deepEqual(sources, result.assumptions.map((one) => one.what + one.value + one.source));
  const three = await section(page, "Three ways to choose").locator("tbody tr").allTextContents();
  const chosen = [...new Set(Object.values(result.choices).filter((at) => at !== null))];
  assert.equal(three.length, chosen.length);
  chosen.forEach((at, i) => assert.ok(three[i].includes(plans[at].cluster) && three[i].includes(plans[at].dispatcher), three[i]));
  // A group is parted from the next.
  const parted = await section(page, "Cost against time").locator("tbody tr.parted").count();
  assert.equal(parted, new Set(usual.map((one) => one.group)).size - 1);
});

await test("sweep: the rows are those of the CSV file, filtered, mapped and set against each other", async () => {
  const { page, said } = await open(reports.sweep);
  const [head, ...lines] = readFileSync(join(resolve(options.out), "sweep.csv"), "utf8").trimEnd().split("\n");
  const data = JSON.parse(await page.locator("#moesim-data").textContent());
  assert.equal(data.result.rows.length, lines.length);
  const csvColumn = head.split(",").indexOf("time_us.value");
  const column = data.result.columns.indexOf("time_us.value");
  data.result.rows.forEach((row, i) => {
    const cell = lines[i].split(",")[csvColumn];
    assert.equal(row[column], cell === "" ? null : Number(cell));
  });
  const rows = section(page, "Rows").locator("tbody tr");
  assert.equal(await rows.count(), Math.min(200, lines.length));
  await page.getByLabel("Filter").fill("allgather");
  assert.equal(await rows.count(), lines.filter((line) => line.includes("allgather")).length);
  const map = section(page, "Map");
  const picture = () => map.locator("canvas").evaluate((canvas) => canvas.toDataURL());
  const before = await picture();
  await map.getByLabel("Show").selectOption("time_us.value");
  assert.notEqual(await picture(), before);
  await map.getByLabel("Across").selectOption("topk");
  const scatter = section(page, "Trade-offs").locator(".chart");
  const points = await scatter.innerHTML();
  await page.getByLabel("recommended dispatcher only").check();
  assert.notEqual(await scatter.innerHTML(), points);
  assert.deepEqual(said, []);
});

await test("a dispatcher has one colour on every page", async () => {
  const colors = new Map();
  const note = (page, name, color) => {
    const hue = color.match(/--[slm]-(\d)/)?.[1];
    assert.ok(hue, `${page}: ${name} is ${color}`);
    assert.equal(colors.get(name) ?? hue, hue, `${name} on the page of ${page}`);
    colors.set(name, hue);
  };
  const compared = await open(reports.compare);
  const labels = await section(compared.page, "Time").locator(`g[aria-label="y-axis tick label"] text`).allTextContents();
  const bars = await section(compared.page, "Time").locator(`g[aria-label="bar"] rect`).evaluateAll((all) => all.map((one) => [one.y.baseVal.value, one.getAttribute("fill")]));
  bars.sort((a, b) => a[0] - b[0]).forEach(([, color], i) => note("compare", labels[i], color));
  for (const report of [reports.whatifMap, reports.sweep]) {
    const { page } = await open(report);
    for (const [name, color] of await page.locator(".kinds > span").evaluateAll((all) => all.map((one) => [one.lastChild.textContent, one.querySelector(".swatch").getAttribute("style")])))
      note(report.name, name.replace(/ \(\d+\)$/, ""), color);
  }
  const { page } = await open(reports.whatifCrossover);
  for (const [name, color] of await page.locator(".legend > span").evaluateAll((all) => all.map((one) => [one.textContent, one.querySelector("[stroke^=var], [fill^=var]").outerHTML])))
    note("crossover", name, color);
  assert.ok(colors.size >= 4, [...colors].join());
  assert.equal(new Set(["allgather", "alltoall", "flex-deepep", "flex-hybridep"].map((name) => colors.get(name))).size, 4);
});

await test("validate --training: as many points and rows as steps", async () => {
  const { page } = await open(reports.training);
  const { rows, median_abs_error: error } = reports.training.result;
  assert.ok(rows.length > 0);
  assert.equal(await page.locator("section").first().locator("tbody tr").count(), rows.length);
  assert.ok((await page.locator("#answer").textContent()).includes(`${(100 * error).toFixed(1)} %`));
});

await test("validate --decisions: every decision with its verdict", async () => {
  const { page } = await open(reports.decisions);
  const { decisions, probability_bins: bins } = reports.decisions.result;
  assert.equal(decisions.length, 2);
  const tables = page.locator("section tbody");
  assert.equal(await tables.nth(0).locator("tr").count(), decisions.length);
  assert.equal(await tables.nth(1).locator("tr").count(), bins.length);
  for (const one of decisions) assert.ok((await tables.nth(0).textContent()).includes(one.verdict));
});

await test("replay: the matrix of bytes adds up over both directions of every pipeline message", async () => {
  const { page } = await open(reports.replay);
  const { matrices } = JSON.parse(await page.locator("#moesim-data").textContent());
  assert.equal(matrices.length, 1);
  assert.equal(matrices[0].ranks, 16);
  const [sent] = matrices[0].bytes;
  assert.equal(sent, 0, "nobody sends to itself");
  assert.ok(matrices[0].bytes.some((bytes) => bytes > 0));
  assert.ok(await section(page, "Who sends how much to whom").locator("canvas").isVisible());
});

await test("validate --all: every recording is there, filtered by text", async () => {
  const { page } = await open(reports.validateAll);
  const cases = reports.validateAll.result.recordings;
  const rows = page.locator("section").first().locator("tbody tr");
  assert.equal(await rows.count(), cases.length);
  await page.getByLabel("Filter").first().fill("no such recording");
  assert.match(await rows.first().textContent(), /no row holds/);
});

// A page with data of our making: a name that tries to end the script.
await test("names can not break out of the page", async () => {
  const folder = join(options.out, "</script><b>x");
  mkdirSync(folder, { recursive: true });
  const scenario = join(folder, "s.json");
  writeFileSync(scenario, JSON.stringify({ model: "mixtral-8x7b", cluster: "dgx-h100x1", parallel: { ep: 8 }, dispatcher: "alltoall" }));
  const report = make("escaped", ["compare", scenario, "--draws", "0"]);
  const { page, said } = await open(report);
  assert.equal(await page.locator("b").count(), 0);
  assert.ok((await page.locator("pre.command").textContent()).includes("</script>"));
  assert.deepEqual(said, []);
});

// 1,024 ranks: small, and usable at once.
const large = process.env.MOESIM_LARGE_REPORT;
const big = large && existsSync(large) ? { name: "1024", file: large, size: statSync(large).size }
  : make("compare-1024", ["compare", "--model", "deepseek-v3", "--cluster", "dgx-h100x128", "--ep", "256", "--dp", "1024",
      "--dispatcher", "allgather,alltoall", "--routing", "zipf:0.8", "--draws", "8"]);
await test("a job of 1,024 GPUs: at most 5 MB", async () => {
  assert.ok(big.size <= 5 * kMegabyte, `${big.size} bytes`);
  const { seconds, said } = await open(big);
  console.log(`        ${(big.size / kMegabyte).toFixed(2)} MB, usable after ${seconds.toFixed(2)} s`);
  assert.deepEqual(said, []);
});

// How long a page takes from its address to the first answer to a key, for docs/results.md; the best of some, since
// other work on the machine only adds.
if (options.measure) {
  for (const report of [...Object.values(reports), big]) {
    let best = Infinity;
    for (let i = 0; i < 5; ++i) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
      const page = await context.newPage();
      const before = performance.now();
      await page.goto(pathToFileURL(report.file).href);
      await page.waitForFunction(() => document.documentElement.dataset.ready === "true" && document.querySelector("main svg, main canvas"));
      await page.keyboard.press("Tab");
      await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
      best = Math.min(best, performance.now() - before);
      await context.close();
    }
    console.log(`${report.name}: ${(report.size / kMegabyte).toFixed(2)} MB, ${(best / 1000).toFixed(2)} s`);
  }
}

await finish();
