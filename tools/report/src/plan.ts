// The report of `plan`: which machine and plan, what each costs in days and money, and what that rests on.
import * as Plot from "@observablehq/plot";
import { figure, intervalDots, signedTick } from "./charts";
import type { Estimate, ReportData } from "./data";
import type { Plan as Training } from "./results";
import { h, section } from "./dom";
import { count, money, number, percent, short as days, sizesOf } from "./format";
import { answer, report } from "./page";
import { table, timeColumn, type Column } from "./table";

type Plan = Training["plans"][number];

const sizes = (p: Plan) => sizesOf(p.parallel).join(", ") || "one GPU";
const place = (p: Plan) => `${count(p.gpus)} GPUs of ${p.cluster}`;
const range = (e: Estimate, shown: (value: number) => string) => (e.low === e.high ? "" : `${shown(e.low)} to ${shown(e.high)}`);

// Money against days, with intervals; the step line joins the plans that nothing beats in both.
function frontier(plans: Plan[], currency: string, deadline?: number, budget?: number): HTMLElement {
  const largest = Math.max(...plans.map((p) => p.cost.high), budget ?? 0);
  const unit = [{ size: 1e9, name: "B" }, { size: 1e6, name: "M" }, { size: 1e3, name: "k" }].find((one) => largest >= one.size) ?? { size: 1, name: "" };
  const sign = currency === "USD" ? "$" : currency;
  const points = plans.map((p) => ({
    x: p.days.value, low: p.days.low, high: p.days.high, y: p.cost.value / unit.size, bottom: p.cost.low / unit.size, top: p.cost.high / unit.size,
    label: p.group, best: p === plans[0], front: p.on_frontier,
    note: `${place(p)}, group ${p.group}\n${days(p.days.value)} days (${range(p.days, days)})\n${money(p.cost.value, currency)} (${range(p.cost, (v) => money(v, currency))})\n${sizes(p)}\n${p.dispatcher}, ${p.precision}`,
  }));
  const front = points.filter((p) => p.front).sort((a, b) => a.x - b.x);
  const limit = { stroke: "var(--bad)", strokeWidth: 1.6, strokeDasharray: "5,3" };
  return figure("What each plan costs against how long it takes, with 90 % intervals; the table below has the numbers", (width) => Plot.plot({
    width,
    height: Math.min(420, Math.max(280, width * 0.45)),
    marginLeft: 62,
    marginRight: 30,
    marginTop: 26,
    marginBottom: 40,
    x: { label: "training [days]", grid: true, nice: true, zero: true, ticks: Math.max(3, Math.floor(width / 110)) },
    y: { label: `cost [${unit.name}${unit.name ? " " : ""}${sign}]`, grid: true, nice: true, zero: true },
    marks: [
      Plot.link(points, { x1: "low", x2: "high", y1: "bottom", y2: "top", stroke: "var(--faded)", strokeWidth: 5, strokeOpacity: 0.45 }),
      front.length > 1 ? Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "var(--text)", strokeWidth: 1.4 }) : null,
      deadline ? Plot.ruleX([deadline], limit) : null,
      deadline ? Plot.text([deadline], { x: (v: number) => v, frameAnchor: "top", dy: -12, text: () => "deadline", fill: "var(--bad-text)", fontWeight: "bold" } as Plot.TextOptions) : null,
      budget ? Plot.ruleY([budget / unit.size], limit) : null,
      budget ? Plot.text([budget / unit.size], { y: (v: number) => v, frameAnchor: "left", textAnchor: "start", dx: 6, dy: -8, text: () => "budget", fill: "var(--bad-text)", fontWeight: "bold" } as Plot.TextOptions) : null,
      Plot.dot(points, {
        x: "x", y: "y", r: 9, fill: (p: { best: boolean; front: boolean }) => (p.best ? "var(--best)" : p.front ? "var(--bar)" : "var(--card)"),
        stroke: "var(--text)", title: "note", tip: { fill: "var(--card)" },
      } as Plot.DotOptions),
      Plot.text(points, { x: "x", y: "y", text: "label", fontSize: 11, fontWeight: "bold", pointerEvents: "none",
        fill: (p: { best: boolean; front: boolean }) => (p.best || p.front ? "var(--on-mark)" : "var(--text)") } as Plot.TextOptions),
    ],
  } as Plot.PlotOptions));
}

function rankColumns(plans: Plan[], currency: string, promised: { deadline: boolean; budget: boolean }): Column<Plan>[] {
  const some = (test: (p: Plan) => boolean) => plans.some(test);
  const share = (title: string, of: (p: Plan) => number): Column<Plan> => ({ title, numeric: true, text: (p) => of(p).toFixed(2), value: of });
  return [
    { title: "group", text: (p) => p.group },
    { title: "machine", text: (p) => p.cluster },
    { title: "GPUs", numeric: true, text: (p) => count(p.gpus), value: (p) => p.gpus },
    { title: "days", numeric: true, text: (p) => days(p.days.value), value: (p) => p.days.value },
    { title: "interval", numeric: true, text: (p) => range(p.days, days), value: (p) => p.days.high - p.days.low },
    { title: "cost", numeric: true, text: (p) => money(p.cost.value, currency), value: (p) => p.cost.value },
    { title: "interval", numeric: true, text: (p) => range(p.cost, (v) => money(v, currency)), value: (p) => p.cost.high - p.cost.low },
    ...(promised.deadline ? [share("P(deadline)", (p) => p.deadline_probability)] : []),
    ...(promised.budget ? [share("P(budget)", (p) => p.budget_probability)] : []),
    share("P(fits)", (p) => p.fits_probability),
    ...(some((p) => p.unmeasured.length > 0) ? [{ title: "not measured there", text: (p: Plan) => p.unmeasured.join("; ") }] : []),
  ];
}

function planColumns(plans: Plan[]): Column<Plan>[] {
  return [
    { title: "plan", text: (p) => `${p.group}: ${p.cluster}` },
    { title: "sizes", text: sizes },
    { title: "microbatches", numeric: true, text: (p) => `${p.parallel["microbatches"]} x ${p.parallel["micro_batch"]}`, value: (p) => p.parallel["microbatches"]! },
    { title: "dispatcher", text: (p) => p.dispatcher },
    { title: "precision", text: (p) => p.precision },
    { title: "schedule", text: (p) => p.schedule },
    { title: "recompute", text: (p) => p.recompute },
    { title: "launch", text: (p) => p.launch },
    { title: "overlap", text: (p) => p.overlap },
    timeColumn("step", plans, (p) => p.step_time_us.value),
    { title: "MFU", numeric: true, text: (p) => percent(p.mfu), value: (p) => p.mfu },
  ];
}

// GPUs that are paid but do no work.
function besideColumns(currency: string): Column<Plan>[] {
  return [
    { title: "plan", text: (p) => `${p.group}: ${place(p)}` },
    { title: "idle GPUs", numeric: true, text: (p) => count(p.idle_gpus), value: (p) => p.idle_gpus },
    { title: "they cost", numeric: true, text: (p) => money((p.cost.value * p.idle_gpus) / p.gpus, currency), value: (p) => (p.cost.value * p.idle_gpus) / p.gpus },
    { title: "goodput", numeric: true, text: (p) => percent(p.goodput), value: (p) => p.goodput },
    { title: "failures a day", numeric: true, text: (p) => number(p.failures_per_day, 2), value: (p) => p.failures_per_day },
    { title: "energy of the nodes", numeric: true, text: (p) => (p.energy ? `${number(p.energy.training_mwh, 3)} MWh` : "unknown"), value: (p) => p.energy?.training_mwh ?? 0 },
  ];
}

// The cheapest plan, that on the fewest GPUs and the one that is done first, and how much better one that was not tried
// may be.
function choices(which: Record<string, number | null>, plans: Plan[], currency: string, gap: number | null): HTMLElement | null {
  const rows: { name: string; plan: Plan }[] = [];
  for (const [key, name] of [["cheapest", "cheapest"], ["fewest_gpus", "fewest GPUs"], ["shortest", "done first"]] as const) {
    if (which[key] == null) continue;
    const plan = plans[which[key]!]!;
    const same = rows.find((row) => row.plan === plan);
    if (same) same.name += `, ${name}`;
    else rows.push({ name, plan });
  }
  if (rows.length === 0) return null;
  const missed = gap === null ? "A better plan may have been left out."
    : gap > 0 ? `No plan of those that were looked at is faster by more than ${percent(gap)}.` : "No plan of those that were looked at is faster.";
  return section("Three ways to choose", `What is cheapest, what needs the fewest GPUs, what is done first? ${missed}`, table(rows, [
    { title: "choice", text: (r) => r.name },
    { title: "machine", text: (r) => r.plan.cluster },
    { title: "GPUs", numeric: true, text: (r) => count(r.plan.gpus), value: (r) => r.plan.gpus },
    { title: "days", numeric: true, text: (r) => days(r.plan.days.value), value: (r) => r.plan.days.value },
    { title: "cost", numeric: true, text: (r) => money(r.plan.cost.value, currency), value: (r) => r.plan.cost.value },
    { title: "plan", text: (r) => `${sizes(r.plan)}; ${r.plan.dispatcher}` },
  ], { caption: "Choices" }));
}

function upgradeSection(upgrades: Training["upgrades"], currency: string): HTMLElement {
  const dollars = (value: number | undefined) => (value ? money(value, currency) : "-");
  return section("Upgrades", "What would a faster network, a larger NVLink domain or the next GPU be worth to the best plan, and what may it cost?",
    intervalDots("Days that each upgrade of the best plan saves, with 90 % intervals", upgrades.map((u) => ({
      label: u.change, at: u.saved_days.value, low: u.saved_days.low, high: u.saved_days.high, good: u.saved_days.value >= 0,
      note: `${u.change}\nsaves ${days(u.saved_days.value)} days (${range(u.saved_days, days)})` })), "days saved", signedTick),
    table(upgrades, [
      { title: "upgrade", text: (u) => u.change },
      { title: "days", numeric: true, text: (u) => days(u.days.value), value: (u) => u.days.value },
      { title: "saved", numeric: true, text: (u) => days(u.saved_days.value), value: (u) => u.saved_days.value },
      { title: "interval", numeric: true, text: (u) => range(u.saved_days, days), value: (u) => u.saved_days.low },
      { title: "worth", numeric: true, text: (u) => (u.worth > 0 ? money(u.worth, currency) : "nothing"), value: (u) => u.worth },
      { title: "a GPU-hour at most", numeric: true, text: (u) => dollars(u.most_gpu_hour), value: (u) => u.most_gpu_hour ?? 0 },
      { title: "listed", numeric: true, text: (u) => dollars(u.listed_gpu_hour), value: (u) => u.listed_gpu_hour ?? 0 },
    ], { caption: "Worth: the days saved, at the present rent. At most: what a GPU-hour with it may cost before the training costs more. Listed: its rent." }));
}

export function planPage(data: ReportData<Training>): HTMLElement[] {
  const result = data.result;
  const all = result.plans;
  const plans = all.filter((p) => !p.lower_precision);
  const lower = all.filter((p) => p.lower_precision);
  const currency = result.currency;
  const deadline = result.deadline_days;
  const budget = result.budget;
  const promised = { deadline: deadline !== undefined, budget: budget !== undefined };
  const first = all[0]!;
  const upgrades = result.upgrades;
  const left = result.left_out;
  const asked = [deadline ? `in at most ${number(deadline)} days` : "", budget ? `for at most ${money(budget, currency)}` : ""].filter((one) => one);
  return report(data, `${result.model?.name ?? "A model"} on ${count(result.tokens)} tokens`,
      `${asked.length > 0 ? `Wanted ${asked.join(" and ")}; ` : ""}ranked by ${result.by}. One plan for each machine and size, the best of those that were tried.`,
    [answer(result.answer, `The plan: ${sizes(first)}; ${first.dispatcher}; ${first.precision}; recomputing ${first.recompute === "none" ? "nothing" : first.recompute}.`)],
    choices(result.choices, all, currency, result.searched.gap),
    section("Cost against time", "What does it cost to be done earlier? The line joins the plans that no other beats in both; green is the answer. Grey: 90 % intervals. Draws do not tell plans with one letter apart.",
      frontier(plans, currency, deadline, budget),
      table(plans, rankColumns(plans, currency, promised), {
        caption: "Plans, the best first; a line parts those that can be told apart", best: (p) => p === first, groupBy: (p) => p.group, mark: 1 })),
    section("The plans", "What runs on each machine?", table(plans, planColumns(plans), { caption: "Plans, the best first", best: (p) => p === first })),
    section("Paid, and no work", "What of the money goes into idle GPUs, failures and checkpoints, and how much energy do the nodes take?",
      table(plans, besideColumns(currency), { caption: "Goodput: share of the time that is work. All GPUs of the nodes are paid.", best: (p) => p === first })),
    lower.length > 0 && section("In a lower precision", "What would products in fewer bits bring? They change the numerics, so none of these is the answer.",
      frontier(lower, currency, deadline, budget),
      table(lower, rankColumns(lower, currency, promised), { caption: "Plans in a lower precision, the best first", groupBy: (p) => p.group }),
      table(lower, planColumns(lower), { caption: "What runs on each machine" })),
    upgrades.length > 0 && upgradeSection(upgrades, currency),
    section("What it rests on", "Which numbers does the answer take for granted, and whose are they?",
      table(result.assumptions, [
        { title: "what", text: (a) => a.what }, { title: "value", text: (a) => a.value }, { title: "source", text: (a) => a.source },
      ], { caption: "Assumptions" }),
      h("p", { class: "key" }, result.searched.sentence),
      h("details", {}, h("summary", {}, "What was searched"), h("p", { class: "key" }, `${result.searched.space}.`))),
    left.length > 0 && section("Left out", "Which machines and dispatchers are not in the tables, and why?", table(left, [
      { title: "what", text: (one) => one.machine }, { title: "because", text: (one) => one.because },
      ], { caption: "Left out" })),
    section("Ask again", "What asks about the step of the best plan.", h("pre", { class: "command", tabindex: 0, "aria-label": "command of the best plan" }, first.command)),
  );
}
