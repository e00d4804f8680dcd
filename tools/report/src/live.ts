// The page of `moesim serve`: a question that is moved, and its answer beside it. What is drawn of an answer is what
// the reports draw.
import { comparePage, excludedBecause, unexplained } from "./compare";
import type { ReportData } from "./data";
import { button, freshId, h, section } from "./dom";
import { percent, quoted } from "./format";
import { knowDispatchers } from "./palette";
import { planPage } from "./plan";
import type { Compare, Plan, Whatif } from "./results";
import { anchoringOf, commandWords, field, fragment, kAnchoring, kNodes, kPlan, kStart, knowFields, read, saidOf, scenarioOf, type Field } from "./question";
import { kSliders, type Slider } from "./sliders";
import { themeButton } from "./theme";
import { whatifPage } from "./whatif";

interface Named {
  name: string;
  description: string;
}

interface LiveData {
  version: string;
  sure: number;
  models: Named[];
  clusters: Named[];
  dispatchers: Named[];
  fields: Field[];
  files: boolean;  // whether texts may name files of the server
  categories: string[];
}

const data = JSON.parse(document.getElementById("moesim-data")!.textContent!) as LiveData;
knowFields(data.fields);

const question = read(location.hash);
const scopeOf = () => question.get("scope") ?? field("scope")!.fallback;
const isStep = () => scopeOf() === "step";
// A slider that the scope has no use for says nothing.
const said = () => saidOf(question).filter(([path]) => isStep() || !kSliders.some((one) => one.step && one.path === path));

// The plan that the last answer searched, by path. It stays under every change but those of the model, the machine and
// the scope, as it does for `moesim whatif`.
let plan: [string, string][] = [];
let planOf = "";
const planKey = () => [question.get("model"), question.get("cluster"), question.get(kNodes), scopeOf()].join(" ");
const kept = () => (planKey() === planOf ? plan.filter(([path]) => !question.get(path)) : []);

function keepPlan(result: Compare): void {
  const searched = (result.inputs.settings ?? []).filter((one) => one.origin.kind === "searched" && one.path !== "cluster");
  if (!isStep() || searched.length === 0) return;
  plan = searched.map((one): [string, string] => [one.path, String(one.value)]);
  planOf = planKey();
}

// Returns the value that the last answer used for a path.
function taken(path: string): string {
  let at: unknown = last?.inputs["scenario"];
  for (const name of path.split(".")) at = at && typeof at === "object" ? (at as Record<string, unknown>)[name] : undefined;
  return typeof at === "number" || typeof at === "string" ? String(at) : "";
}

const scenario = (fields = [...said(), ...kept()]) => scenarioOf(question, fields);

// A plan is what is searched: its sizes, how it is run and the dispatcher are not said.
function planned(): Record<string, unknown> | null {
  const of = (name: string) => question.get(kPlan + name) ?? "";
  if (!of("tokens")) return null;
  const searched = (path: string) =>
    path === "dispatcher" || path === "scope" || (path.startsWith("parallel.") && path !== "parallel.seq");
  const asked = scenario(said().filter(([path]) => !searched(path)));
  const clusters = of("clusters");
  if (clusters) delete asked["cluster"];
  const limits = Object.fromEntries(["deadline", "budget"].filter((name) => of(name)).map((name) => [name, of(name)]));
  return { scenario: asked, tokens: of("tokens"), ...(clusters ? { clusters } : {}), ...limits };
}

// Without the dispatchers that cannot run here, which the command line refuses.
const legalOf = (dispatchers: string) => dispatchers.split(",").filter((one) => !illegal.has(one)).join(",") || dispatchers;

// Empty while a text of the question is no JSON yet.
function commandLine(): string {
  try {
    return commandWords(question, [...said(), ...kept()].map(([path, text]) => [path, path === "dispatcher" ? legalOf(text) : text])).map(quoted).join(" ");
  } catch {
    return "";
  }
}

class Refused extends Error {}
const textOf = (error: unknown) => (error instanceof Error ? error.message : "");

async function ask(path: string, body: unknown, signal: AbortSignal | null = null): Promise<Response> {
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  if (response.ok) return response;
  let why = `${response.status} ${response.statusText}`;
  try {
    why = ((await response.json()) as { error: string }).error;
  } catch {}
  throw new Refused(why);
}

const asReport = <R>(verb: string, result: R): ReportData<R> => ({
  schema: "moesim.report/1", verb, sure: data.sure, categories: data.categories, dispatchers: data.dispatchers.map((one) => one.name), result, timelines: [], pipelines: [], matrices: [], gpus_per_node: 8,
});

// Asks for the newest state; while an answer is under way, what comes in between is left out. `then` comes when nothing
// newer is left.
function follower(work: () => Promise<void>, then?: () => void): () => void {
  let busy = false;
  let again = false;
  const go = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      await work();
    } while (again);
    busy = false;
    then?.();
  };
  return () => void go();
}

// Replaces what a holder shows without letting the page jump while charts are measured.
function show(holder: HTMLElement, ...parts: Node[]): void {
  holder.style.minHeight = `${holder.offsetHeight}px`;
  holder.replaceChildren(...parts);
  requestAnimationFrame(() => requestAnimationFrame(() => (holder.style.minHeight = "")));
}

const problem = h("p", { class: "problem", role: "alert" });
const without = h("p", { class: "key", id: "without" });
const results = h("div", { id: "results", "aria-live": "off" });
const details = h("div", { id: "details" });
const changes = h("div", { id: "changes" });
const plans = h("div", { id: "plans" });
const took = h("p", { class: "took", id: "took" });
// Asks the same on a command line.
const command = h("pre", { class: "command", tabindex: 0, "aria-label": "command line", id: "command" });
let moved = kSliders.find((one) => one.path === "topk")!;
let last: Compare | null = null;
let illegal = new Set<string>(); // of the dispatchers that are named: cannot run here
let movedAt = 0;

const answerNow = follower(async () => {
  const start = performance.now();
  try {
    // The measurement that would settle it takes as long as the rest, and is not shown here.
    const response = await ask("answer", { ...scenario(), ...anchoringOf(question), leave_out_illegal: true, measure_next: false });
    last = (await response.json()) as Compare;
    const why = unexplained(last);
    keepPlan(last);
    draw();
    const back = performance.now();
    const named = question.has("dispatcher") && question.get("dispatcher") !== "all";
    const excluded = last.excluded ?? [];
    illegal = new Set(named ? excluded.map((one) => one.dispatcher) : []);
    without.textContent = illegal.size > 0 ? `Left out: ${excluded.map(excludedBecause).join("; ")}.` : "";
    command.textContent = commandLine();
    // Its own heading and how to make it again stand elsewhere on this page.
    const parts = why ?? comparePage(asReport("compare", last)).slice(1, -1);
    const time = why ? parts.length : parts.findIndex((part) => part.tagName === "SECTION") + 1;
    show(results, ...parts.slice(0, time));
    show(details, ...parts.slice(time));
    problem.textContent = "";
    for (const one of [results, details]) one.classList.remove("stale");
    const drawn = performance.now();
    took.textContent = `moesim ${data.version}: answered in ${(back - start).toFixed(0)} ms, drawn in ${(drawn - back).toFixed(0)} ms`;
    document.documentElement.dataset["answered"] = String(Number(document.documentElement.dataset["answered"] ?? 0) + 1);
    document.documentElement.dataset["answerMs"] = (back - start).toFixed(1);
    document.documentElement.dataset["drawMs"] = (drawn - back).toFixed(1);
    // Charts are drawn when their width is known, in the next frame; what was moved before this one shows then.
    requestAnimationFrame(() => requestAnimationFrame(() => (document.documentElement.dataset["seenMs"] = (performance.now() - movedAt).toFixed(1))));
  } catch (error) {
    problem.textContent = error instanceof Refused || error instanceof SyntaxError ? error.message : "the server does not answer: was it ended?";
    for (const one of [results, details]) one.classList.add("stale");
    document.documentElement.dataset["refused"] = String(Number(document.documentElement.dataset["refused"] ?? 0) + 1);
  }
}, () => changesNow());

// Where the winner changes with the slider that was moved last.
const changesNow = follower(async () => {
  const slider = moved;
  const start = performance.now();
  try {
    const response = await ask("crossover", { scenario: scenario(), crossover: `${slider.crossed ?? slider.path}=${slider.range}`, draws: 0 });
    const parts = whatifPage(asReport("whatif", (await response.json()) as Whatif));
    const sentence = parts.find((part) => part.classList.contains("answer"))!.textContent!;
    const chart = parts.find((part) => part.tagName === "SECTION")!;
    chart.querySelector("h2")!.textContent = `Where the winner changes with ${slider.label}`;
    chart.querySelector(".question")!.textContent = sentence;
    show(changes, chart);
    changes.classList.remove("stale");
    document.documentElement.dataset["changesMs"] = (performance.now() - start).toFixed(1);
    document.documentElement.dataset["changes"] = slider.path;
  } catch (error) {
    show(changes, section(`Where the winner changes with ${slider.label}`, textOf(error)));
  }
});

// The best plan for a training, where the number of tokens is given. It takes seconds, so it is requested again only
// where the question has changed: first with few forecasts, then with those of the command line, whose plan it is.
const kFirstLook = { most: 100, draws: 8 };
let lastPlan = "";
let wholePlan: AbortController | null = null;

function showPlan(result: Plan, progress: string): void {
  const parts = planPage(asReport("plan", result));
  const sections = parts.filter((part) => part.tagName === "SECTION");
  const cut = progress ? [h("p", { class: "key", id: "cut" }, progress)] : [];
  show(plans, parts.find((part) => part.classList.contains("answer"))!, ...cut, ...sections.slice(0, -1));
}

async function showWholePlan(body: Record<string, unknown>, first: Plan): Promise<void> {
  const faster = percent(first.searched.gap ?? 0);
  const look = `A first look with ${kFirstLook.most} forecasts a search: a plan that is up to ${faster} faster may exist.`;
  showPlan(first, `${look} Searching on.`);
  wholePlan = new AbortController();
  try {
    showPlan((await (await ask("plan", body, wholePlan.signal)).json()) as Plan, "");
  } catch (error) {
    if (!wholePlan.signal.aborted)
      showPlan(first, `${look} The whole search was cut: ${textOf(error)}. moesim plan on a command line, or moesim serve --seconds 300, ends it.`);
  }
  wholePlan = null;
}

const planNow = follower(async () => {
  const body = planned();
  const text = JSON.stringify(body);
  if (text === lastPlan) return;
  lastPlan = text;
  if (!body) {
    plans.replaceChildren();
    return;
  }
  plans.classList.add("stale");
  try {
    const first = (await (await ask("plan", { ...body, ...kFirstLook })).json()) as Plan;
    plans.classList.remove("stale");
    await showWholePlan(body, first);
    document.documentElement.dataset["planned"] = text;
  } catch (error) {
    show(plans, h("p", { class: "problem", role: "alert" }, textOf(error)));
  }
  plans.classList.remove("stale");
});

function changed(): void {
  movedAt = performance.now();
  history.replaceState(null, "", `#${fragment(question)}`);
  command.textContent = commandLine();
  draw();
  answerNow();
  if (JSON.stringify(planned()) !== lastPlan) wholePlan?.abort();
  planNow();
}

// Says a text of the question, or no longer.
function say(path: string, text: string): void {
  if (text === "") question.delete(path);
  else question.set(path, text);
  changed();
}

// Controls show the question; this puts it there when it changed in another way.
const drawn: (() => void)[] = [];
const draw = () => drawn.forEach((one) => one());

function chooser(label: string, path: string, names: Named[], shown: (name: string) => string = (name) => name): HTMLElement {
  const id = freshId("choose");
  const box = h("select", { id });
  for (const one of names) box.append(h("option", { value: one.name, title: one.description }, shown(one.name)));
  const about = h("span", { class: "about-choice" });
  box.addEventListener("change", () => say(path, box.value));
  drawn.push(() => {
    const value = question.get(path)!;
    if (![...box.options].some((one) => one.value === value)) box.append(h("option", { value }, value));
    box.value = value;
    about.textContent = names.find((one) => one.name === value)?.description ?? "";
  });
  return h("div", { class: "field" }, h("label", { for: id }, label), box, about);
}

function slide(slider: Slider): HTMLElement {
  const id = freshId("slide");
  const box = h("input", { type: "range", id, min: 0, max: slider.values.length - 1, step: 1 });
  const output = h("output", { for: id });
  const text = (value: string) => (value === "" ? slider.unsaid ?? "" : slider.shown ? slider.shown(value) : value);
  box.addEventListener("input", () => {
    moved = slider;
    say(slider.path, slider.values[Number(box.value)]!);
  });
  const holder = h("div", { class: "field slider" }, h("label", { for: id }, slider.label), output, box);
  drawn.push(() => {
    const value = question.get(slider.path) ?? "";
    // Shows a value that was not given at the one that the answer used.
    const chosen = value === "" && slider.chosen ? taken(slider.path) : "";
    const at = slider.values.indexOf(chosen || value);
    // A value between the steps came from an address or from the other fields: it is shown as it is.
    if (at >= 0) box.value = String(at);
    const label = chosen ? `${text(chosen)} (chosen)` : text(value);
    output.textContent = label;
    box.setAttribute("aria-valuetext", label);
    holder.hidden = Boolean(slider.step) && !isStep();
  });
  return holder;
}

function nodes(): HTMLElement {
  const id = freshId("nodes");
  const box = h("input", { type: "number", id, min: 1, max: 100000, step: 1, inputmode: "numeric" });
  box.addEventListener("input", () => {
    if (/^[1-9]\d{0,5}$/.test(box.value)) say(kNodes, box.value);
  });
  const holder = h("div", { class: "field" }, h("label", { for: id }, "Nodes or racks"), box);
  drawn.push(() => {
    if (document.activeElement !== box) box.value = question.get(kNodes) ?? "1";
    holder.hidden = !/N$/.test(question.get("cluster")!);
  });
  return holder;
}

// A text of the question that is no field of the scenario.
function texts(key: string, label: string, placeholder: string): HTMLElement {
  const id = freshId("text");
  const box = h("input", { type: "text", id, placeholder, spellcheck: "false" });
  box.addEventListener("change", () => say(key, box.value.trim()));
  drawn.push(() => {
    if (document.activeElement !== box) box.value = question.get(key) ?? "";
  });
  return h("span", { class: "control" }, h("label", { for: id }, label), box);
}

function anchoring(): HTMLElement {
  return h("details", { class: "field", open: kAnchoring.some((name) => question.get(name)) }, h("summary", {}, "My own run, and the loss I accept"),
    texts("measured", "Measured", "1.9s, or alltoall=1.9s"), texts("tolerance", "Loss accepted", "10%"));
}

function planning(): HTMLElement {
  const field = (name: string, label: string, placeholder: string) => texts(kPlan + name, label, placeholder);
  return section("A whole training", "On so many tokens: how long, for how much, with which plan? Say the tokens; the plan is searched.",
    h("div", { class: "controls" }, field("tokens", "Tokens", "15T"), field("deadline", "Deadline", "60d"), field("budget", "Budget", "40M$"),
      field("clusters", "On other machines", "h100,dgx-b200x64")));
}

function scopes(): HTMLElement {
  const holder = h("fieldset", { class: "field" }, h("legend", {}, "Scope"));
  for (const [value, label] of [["layer", "one MoE layer"], ["step", "a training step"]] as const) {
    const id = freshId("scope");
    const box = h("input", { type: "radio", name: "scope", id, value });
    box.addEventListener("change", () => say("scope", value));
    drawn.push(() => (box.checked = scopeOf() === value));
    holder.append(h("span", { class: "control" }, box, h("label", { for: id }, label)));
  }
  return holder;
}

function dispatchers(): HTMLElement {
  const all = data.dispatchers.map((one) => one.name);
  const boxes = all.map((name) => {
    const id = freshId("dispatcher");
    const box = h("input", { type: "checkbox", id, value: name });
    box.addEventListener("change", () => {
      const chosen = boxes.filter((one) => one.box.checked).map((one) => one.box.value);
      say("dispatcher", chosen.length === 0 || chosen.length === all.length ? "all" : chosen.join(","));
    });
    return { box, shown: h("span", { class: "control" }, box, h("label", { for: id }, name)) };
  });
  const summary = h("summary");
  drawn.push(() => {
    const value = question.get("dispatcher");
    const usual = ((last?.inputs.scenario?.["dispatcher"] ?? []) as unknown[]).map(String);
    const names = value === undefined ? usual : value === "all" ? all : value.split(",");
    const chosen = names.map((one) => one.split(":")[0]!);
    for (const { box } of boxes) box.checked = chosen.includes(box.value);
    summary.textContent = value === undefined ? "Dispatchers: those that people choose between here" : value === "all" ? "Dispatchers: all that are legal" : `Dispatchers: ${chosen.length} of ${all.length}`;
  });
  return h("details", { class: "field" }, summary, h("div", { class: "boxes" }, ...boxes.map((one) => one.shown)));
}

// Everything else that a scenario can say, a line each.
function others(): HTMLElement {
  const id = freshId("others");
  const controlled = new Set([...kStart.map(([path]) => path), "scope", "dispatcher", ...kSliders.map((one) => one.path)]);
  const own = { has: (path: string) => controlled.has(path) || kAnchoring.includes(path) || path.startsWith(kPlan) };
  const box = h("textarea", { id, rows: 4, spellcheck: "false", placeholder: "training.recompute=full" });
  const wrong = h("p", { class: "problem" });
  box.addEventListener("change", () => {
    const lines = box.value.split("\n").map((line) => line.trim()).filter((line) => line);
    const bad = lines.find((line) => !/^[\w.]+=.+$/.test(line) || own.has(line.slice(0, line.indexOf("="))) || !field(line.slice(0, line.indexOf("="))));
    wrong.textContent = bad ? `found “${bad}”, expected path=value with a path of the list below` : "";
    if (bad) return;
    for (const path of [...question.keys()]) if (!own.has(path)) question.delete(path);
    for (const line of lines) question.set(line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1));
    changed();
  });
  drawn.push(() => {
    if (document.activeElement !== box)
      box.value = [...question].filter(([path, text]) => !own.has(path) && text !== "").map(([path, text]) => `${path}=${text}`).join("\n");
  });
  const known = data.fields.filter((one) => !own.has(one.path));
  return h("details", { class: "field" }, h("summary", {}, "More fields"),
    h("label", { for: id }, "One a line, path=value"), box, wrong,
    h("details", {}, h("summary", {}, `${known.length} paths`),
      data.files ? "" : h("p", {}, "Where a file may stand, this page takes its JSON or text: it was started without --allow-files."),
      h("dl", { class: "paths" }, ...known.flatMap((one) => [h("dt", {}, one.path), h("dd", {}, one.help + (one.fallback ? ` [${one.fallback}]` : ""))]))));
}

function save(name: string, type: string, text: string): void {
  const link = h("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function takeAway(): HTMLElement {
  const note = h("span", { role: "status", id: "note" });
  const tell = (text: string) => {
    note.textContent = text;
    setTimeout(() => (note.textContent = ""), 3000);
  };
  const copy = async (text: string, what: string) => {
    try {
      await navigator.clipboard.writeText(text);
      tell(`${what} copied`);
    } catch {
      tell("the browser does not let a page copy: mark and copy it by hand");
    }
  };
  const report = async () => {
    tell("the report is being made");
    try {
      save("moesim-report.html", "text/html", await (await ask("report", { ...scenario(), ...anchoringOf(question), leave_out_illegal: true })).text());
      tell("report saved");
    } catch (error) {
      problem.textContent = textOf(error);
    }
  };
  return section("Take it with you", "The address of this page holds the question: a link is enough to share it with anyone who runs moesim serve.",
    h("div", { class: "controls" },
      button("Copy link", "copy the address of this question", () => void copy(location.href, "link")),
      button("Copy command", "copy the command line that answers the same", () => void copy(commandLine(), "command")),
      button("Save scenario", "save the complete scenario as a file for the command line", () =>
        last ? save("scenario.json", "application/json", JSON.stringify(last.inputs["scenario"], null, 2) + "\n") : tell("there is no answer yet")),
      button("Save report", "save the answer as a page of its own, with timelines", () => void report()),
      note));
}

function start(): void {
  knowDispatchers(data.dispatchers.map((one) => one.name));
  const controls = h("form", { class: "question-form", id: "question", "aria-label": "question" },
    chooser("Model", "model", data.models),
    chooser("Machine", "cluster", data.clusters, (name) => name.replace(/xN$/, "")),
    nodes(), scopes(), ...kSliders.map(slide), dispatchers(), anchoring(), others(), took);
  controls.addEventListener("submit", (event) => event.preventDefault());
  document.body.append(h("main", { class: "live" },
    h("header", {},
      h("div", { class: "bar" }, h("span", { class: "name" }, "moesim live"), h("span", { class: "buttons" }, themeButton())),
      h("h1", {}, "Which dispatcher, on which machine?"),
      command),
    h("div", { class: "columns" }, h("div", { class: "answers" }, planning(), plans, problem, without, results), controls,
      h("div", { class: "answers" }, changes, details, takeAway()))));
  window.addEventListener("hashchange", () => {
    const now = read(location.hash);
    question.clear();
    for (const [path, text] of now) question.set(path, text);
    changed();
  });
  changed();
  document.documentElement.dataset["ready"] = "true";
}

start();
