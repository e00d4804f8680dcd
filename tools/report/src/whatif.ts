// The reports of `whatif`: one per kind of question, told apart by what the result holds.
import { rollup } from "d3";
import type { Estimate, ReportData } from "./data";
import { chosen, h, named, section } from "./dom";
import { intervalBars, intervalDots, lines, signedTick, stackedBars, type Series } from "./charts";
import { nameOf, number, percent, probability, signedPercent, sizesOf, time, timeUnit, words } from "./format";
import { grid } from "./grid";
import { answer, report } from "./page";
import { categoryColor, dispatcherColor, dispatcherLine, dispatcherVariable } from "./palette";
import type { Whatif } from "./results";
import { byteColumn, table, timeColumn } from "./table";

type Evaluation = Whatif["baseline"];
type OneAnswer = Evaluation["dispatchers"][number];
type Cell = Whatif["map"][number];
type Axis = Whatif["axes"][number];

function about(result: Whatif): string {
  const s = result.inputs.scenario;
  if (!s) return "";
  const scope = (s["train"] === false ? "forward pass of " : "") + (s["scope"] === "step" ? "one training step" : "one MoE layer");
  return `Scenario: ${scope} of ${nameOf(result["model"], nameOf(s["model"], "a model"))}${s["cluster"] ? ` on ${nameOf(s["cluster"], "a machine of its own")}` : ""}` +
    (s["routing"] ? `, routing ${nameOf(s["routing"], "as given")}` : "") + ".";
}

const signed = (share: number) => signedPercent(share - 1);
const span = (ratio: Estimate) => `${signed(ratio.value)} (${signed(ratio.low)} to ${signed(ratio.high)})`;

// Before and after, side by side.
function changesPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const before = result.baseline;
  const after = result.change;
  const of = (e: Evaluation, name: string) => e.dispatchers.find((one) => one.dispatcher === name && !one.error);
  const names = [...new Set([...before.dispatchers, ...after.dispatchers].map((one) => one.dispatcher))];
  const today = result.today;
  const fastBefore = of(before, today.dispatcher)!;
  const fastAfter = of(after, today.then!)!;
  const all = [before, after].flatMap((e) => e.dispatchers.filter((one) => !one.error));
  const unit = timeUnit(Math.max(...all.map((one) => one.time_us.high)));
  const text = result.changes.map((c) => c.text).join(", ");
  const bar = (one: OneAnswer, what: string, best: boolean) => ({
    label: `${one.dispatcher}, ${what}`, ...one.time_us, best, color: dispatcherColor(one.dispatcher),
    note: `${one.dispatcher}, ${what}\n${time(one.time_us.value, unit)} (${time(one.time_us.low, unit)} to ${time(one.time_us.high, unit)})`,
  });
  const categories = data.categories.filter((c) => (fastBefore.breakdown_us[c] ?? 0) > 0 || (fastAfter.breakdown_us[c] ?? 0) > 0);
  const both = [["before", fastBefore], ["after", fastAfter]] as [string, OneAnswer][];
  const label = (what: string, one: OneAnswer) => `${what}: ${one.dispatcher}`;
  const differences = result.differences;
  return report(data, text, about(result),
    [answer(result.because)],
    section("Difference", "How much does each dispatcher gain or lose? Both sides are drawn alike, so what they share cancels. Diamonds are slower.",
      intervalDots("Change of the time of each dispatcher with its 90 % interval",
        differences.map((one) => ({
          label: one.dispatcher, at: 100 * (one.ratio.value - 1), low: 100 * (one.ratio.low - 1), high: 100 * (one.ratio.high - 1),
          note: `${one.dispatcher}\n${span(one.ratio)}`, good: one.ratio.value <= 1 })),
        "change of the time [%]", signedTick)),
    section("Time", "What does each dispatcher take before and after? Whiskers are 90 % intervals.",
      intervalBars("Time of each dispatcher before and after the change", names.flatMap((name) => {
        const b = of(before, name);
        const a = of(after, name);
        return [...(b ? [bar(b, "before", false)] : []), ...(a ? [bar(a, "after", name === today.then)] : [])];
      }), unit, "time"),
      table(names, [
        { title: "dispatcher", text: (n) => n },
        ...([["before", before], ["after", after]] as [string, Evaluation][]).flatMap(([what, e]) => [
          { title: `${what} [${unit.name}]`, numeric: true, text: (n: string) => { const one = of(e, n); return one ? (one.time_us.value * unit.factor).toFixed(2) : "-"; },
            value: (n: string) => of(e, n)?.time_us.value ?? Infinity },
        ]),
        { title: "change", numeric: true, text: (n) => { const d = differences.find((one) => one.dispatcher === n); return d ? span(d.ratio) : "-"; },
          value: (n) => differences.find((one) => one.dispatcher === n)?.ratio.value ?? Infinity },
        { title: "tokens/s/GPU before", numeric: true, text: (n) => number(Math.round(of(before, n)?.tokens_per_s_per_gpu ?? NaN)), value: (n) => of(before, n)?.tokens_per_s_per_gpu ?? 0 },
        { title: "after", numeric: true, text: (n) => number(Math.round(of(after, n)?.tokens_per_s_per_gpu ?? NaN)), value: (n) => of(after, n)?.tokens_per_s_per_gpu ?? 0 },
        { title: "fits", text: (n) => `${of(before, n)?.fits ? "yes" : "no"}, then ${of(after, n)?.fits ? "yes" : "no"}` },
      ], { caption: "All dispatchers", best: (n) => n === today.then })),
    section("What moved", "Which part of the time of what runs changes? The parts add up to the bars.",
      stackedBars("Parts of the time before and after",
        both.flatMap(([what, one]) => categories.map((c) => ({
          label: label(what, one), part: c, value: one.breakdown_us[c] ?? 0,
          note: `${label(what, one)}\n${words(c)} ${time(one.breakdown_us[c] ?? 0, unit)}` }))),
        both.map(([what, one]) => label(what, one)), categories, categoryColor, { unit, axis: "time", totals: true }),
      table(result.parts, [
        { title: "part", text: (p) => words(p.category) },
        { title: `before [${unit.name}]`, numeric: true, text: (p) => (p.baseline_us * unit.factor).toFixed(2), value: (p) => p.baseline_us },
        { title: "after", numeric: true, text: (p) => (p.change_us * unit.factor).toFixed(2), value: (p) => p.change_us },
        { title: "difference", numeric: true, text: (p) => (p.difference_us * unit.factor).toFixed(2), value: (p) => p.difference_us },
      ], { caption: "Parts of what runs" })),
  );
}

function eachPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const ranking = result.ranking;
  const good = ranking.filter((one) => !one.error);
  const first = good[0];
  return report(data, "Which change helps most?", about(result),
    [answer(result.answer, first?.because)],
    section("Changes", "What is each change worth by itself? Tokens per second and GPU against the baseline, with 90 % intervals; diamonds are worse.",
      intervalDots("Change of the throughput with each change", good.map((one) => ({
        label: one.text, at: 100 * (one.throughput_ratio.value - 1), low: 100 * (one.throughput_ratio.low - 1), high: 100 * (one.throughput_ratio.high - 1),
        note: `${one.text}\n${span(one.throughput_ratio)}`, good: one.throughput_ratio.value >= 1 })),
        "change of tokens/s/GPU [%]", signedTick),
      table(ranking, [
        { title: "change", text: (o) => o.text },
        timeColumn("time", ranking, (o) => o.time_us?.value),
        { title: "change of time", numeric: true, text: (o) => (o.error ? "-" : span(o.ratio)), value: (o) => o.ratio?.value ?? Infinity },
        { title: "tokens/s/GPU", numeric: true, text: (o) => (o.error ? "-" : span(o.throughput_ratio)), value: (o) => o.throughput_ratio?.value ?? 0 },
        { title: "dispatcher", text: (o) => o.dispatcher ?? "-" },
        { title: "fits", text: (o) => (o.error ? "-" : o.fits ? "yes" : "no") },
      ], { caption: "Each change by itself, the most helpful first", best: (o) => o === first }),
      h("dl", { class: "why" }, ...ranking.flatMap((o) => [h("dt", {}, o.text), h("dd", {}, o.error ?? o.because)]))),
  );
}

function crossoverPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const path = result.path;
  const points = result.points;
  const crossings = result.crossovers;
  const names = [...new Set(points.flatMap((point) => Object.keys(point.time_us)))];
  const values = points.map((point) => point.value);
  const pathUnit = result.unit;
  const counts = !pathUnit.name && values.every((value) => Number.isInteger(value));
  const scaled = (value: number) => value / pathUnit.one;
  const shown = (value: number) => `${number(scaled(value))}${pathUnit.name ? ` ${pathUnit.name}` : ""}`;
  const spread = Math.max(...values) / Math.max(1e-300, Math.min(...values));
  const logarithmic = Math.min(...values) > 0 && spread >= 50;
  const unit = timeUnit(Math.max(...points.flatMap((point) => Object.values(point.time_us).map((e) => e.high))));
  const sure = crossings.map((c) => c.sure).join(" ");
  const changes = crossings.map((c) => ({ at: scaled(c.at.value), low: scaled(c.at.low), high: scaled(c.at.high), label: `${c.from} to ${c.to}` }));
  const draw = (how: string) => {
    const relative = how === "relative";
    const series: Series[] = names.map((name) => ({
      name, color: dispatcherLine(name),
      points: points.filter((point) => point.time_us[name]).map((point) => {
        const e = point.time_us[name]!;
        const best = point.time_us[point.fastest]!.value;
        const y = relative ? 100 * (e.value / best - 1) : e.value * unit.factor;
        return {
          x: scaled(point.value), y, low: relative ? y : e.low * unit.factor, high: relative ? y : e.high * unit.factor,
          note: `${path} = ${shown(point.value)}\n${name} ${time(e.value, unit)} (${time(e.low, unit)} to ${time(e.high, unit)})\n` +
            `${signedPercent(e.value / best - 1)} against the fastest`,
        };
      }),
    }));
    return [lines(
      relative ? "Time of each dispatcher against the fastest" : "Time of each dispatcher with its 90 % interval", series,
      { x: pathUnit.name ? `${path} [${pathUnit.name}]` : path, y: relative ? "slower than the fastest [%]" : `time [${unit.name}]`, logarithmic, whole: counts && !logarithmic, changes, signed: relative })];
  };
  const without = result.without_forecast;
  return report(data, `Where does the fastest dispatcher change with ${path}?`, about(result),
    [answer(result.answer, sure || undefined)],
    section("Crossover", "Who is ahead, and by how much? The dashed upright line is where the lead changes, grey where it may lie.",
      ...chosen("Show", [{ value: "relative", label: "against the fastest" }, { value: "time", label: "time with intervals" }], "relative", draw),
      table(points, [
        { title: path, numeric: true, text: (p) => shown(p.value), value: (p) => p.value },
        ...names.map((name) => ({
          title: `${name} [${unit.name}]`, numeric: true, text: (p: Whatif["points"][number]) => (p.time_us[name] ? (p.time_us[name]!.value * unit.factor).toFixed(2) : "-"),
          value: (p: Whatif["points"][number]) => p.time_us[name]?.value ?? Infinity })),
        { title: "fastest", text: (p) => p.fastest },
        { title: "probability", numeric: true, text: (p) => p.probability?.toFixed(2) ?? "-", value: (p) => p.probability ?? -1 },
        ...(points.every((p) => p.fits) ? [] : [{ title: "fits", text: (p: Whatif["points"][number]) => (p.fits ? "yes" : "no") }]),
      ], { caption: "Every value that was tried", sortBy: 0 })),
    without.length > 0 && section("Without a forecast", "Which values can not be, and why?", table(without, [
      { title: path, numeric: true, text: (w) => shown(w.value), value: (w) => w.value }, { title: "reason", text: (w) => w.error },
      ], { caption: "Values without a forecast" })),
  );
}

function mapPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const cells = result.map;
  const [across, down] = result.axes as [Axis, Axis];
  const C = across.values.length;
  const R = down.values.length;
  const at = (row: number, column: number) => cells[(R - 1 - row) * C + column]!;  // the largest value on top
  const known = cells.filter((cell) => !cell.error);
  const wins = rollup(known, (cells) => cells.length, (cell) => cell.fastest!);
  const names = [...wins.keys()].sort((a, b) => wins.get(b)! - wins.get(a)!);
  const letter = (name: string) => String.fromCharCode(65 + names.indexOf(name));
  const drawn = known.some((cell) => cell.probability != null);
  const sure = known.filter((cell) => (cell.probability ?? 0) >= data.sure).length;
  const beyond = known.filter((cell) => !cell.fits).length;
  const largest = [...known].sort((a, b) => (b.speedup ?? 1) - (a.speedup ?? 1))[0]!;
  const valueOf = (axis: Axis, cell: Cell) => axis.shown[axis.values.indexOf(cell[axis.path])] ?? `${cell[axis.path]}`;
  const place = (cell: Cell) => `${across.path} = ${valueOf(across, cell)}, ${down.path} = ${valueOf(down, cell)}`;
  const timeOf = (cell: Cell) => cell.time_us?.[cell.fastest!];
  const columns = across.shown;
  const rows = [...down.shown].reverse();
  const text = (r: number, c: number) => {
    const cell = at(r, c);
    return `${place(cell)}: ${cell.fastest} is the fastest${cell.probability == null ? "" : ` with probability ${probability(cell.probability)}`}` +
      (cell.speedup ? `, ${cell.speedup.toFixed(3)} times as fast as the next` : "") + (timeOf(cell) ? `, ${time(timeOf(cell)!)}` : "") + (cell.fits ? "" : "; nothing fits the memory");
  };
  const draw = (what: string) => [
      what === "winner"
        ? grid({
            description: `The fastest dispatcher over ${across.path} and ${down.path}`, rows, columns,
            rowTitle: down.path, columnTitle: across.path, scaleText: () => "",
            value: (r, c) => (at(r, c).error ? null : 1), text,
            cellText: (r, c) => {
              const mark = letter(at(r, c).fastest!) + (at(r, c).fits ? "" : "!");
              return [`${mark} ${(at(r, c).speedup ?? 1).toFixed(2)}×`, mark];
            },
            paint: (r, c) => ({ color: dispatcherVariable(at(r, c).fastest!), unsure: drawn && at(r, c).probability! < data.sure }),
          })
        : grid({
            description: `${what} over ${across.path} and ${down.path}`, rows, columns, rowTitle: down.path, columnTitle: across.path,
            value: (r, c) => (at(r, c).error ? null : what === "probability" ? at(r, c).probability! : what === "time" ? timeOf(at(r, c))! : at(r, c).speedup ?? 1),
            text, scaleText: (v) => (what === "probability" ? percent(v, 0) : what === "time" ? time(v) : `${v.toFixed(2)}×`),
            cellText: (r, c) => (what === "probability" ? percent(at(r, c).probability!, 0) : what === "time" ? time(timeOf(at(r, c))!) : `${(at(r, c).speedup ?? 1).toFixed(2)}×`),
          })];
  const [controls, picture] = chosen("Show", [{ value: "winner", label: "the fastest" }, { value: "lead", label: "lead over the next" },
    ...(drawn ? [{ value: "probability", label: "probability" }] : []), ...(known.some((c) => timeOf(c)) ? [{ value: "time", label: "time of the fastest" }] : [])], "winner", draw);
  return report(data, `The fastest dispatcher over ${across.path} and ${down.path}`, about(result),
    [answer(names.map((name, i) => `${name} ${i === 0 ? "is the fastest in" : "in"} ${wins.get(name)}${i === 0 ? ` of ${known.length} scenarios` : ""}`).join(", ") +
      `${drawn ? `; sure (probability at least ${data.sure}) in ${sure} of them` : ""}${beyond ? `; nothing fits the memory in ${beyond}` : ""}.`,
      largest.speedup ? `The lead is largest at ${place(largest)}: ${largest.fastest} is ${largest.speedup.toFixed(2)} times as fast as the next.` : undefined)],
    section("Crossover map", "Who wins where, and by how much? A cell has the letter of the fastest and its lead over the next; striped cells are not sure" +
      (beyond ? "; !: nothing fits the memory." : "."),
      controls,
      h("div", { class: "kinds" }, ...names.map((name) =>
        h("span", {}, h("span", { class: "swatch", style: `background:${dispatcherColor(name)}` }, letter(name)), `${name} (${wins.get(name)})`))),
      h("p", { class: "axes" }, `Across: ${across.path}. Down: ${down.path}.`),
      picture,
      h("details", {}, h("summary", {}, "All cells"),
        table(cells, [
          { title: across.path, numeric: true, text: (c) => valueOf(across, c), value: (c) => Number(c[across.path]) },
          { title: down.path, numeric: true, text: (c) => valueOf(down, c), value: (c) => Number(c[down.path]) },
          { title: "fastest", text: (c) => c.fastest ?? "-" },
          { title: "probability", numeric: true, text: (c) => c.probability?.toFixed(2) ?? "-", value: (c) => c.probability ?? 0 },
          { title: "lead", numeric: true, text: (c) => (c.speedup ? `${c.speedup.toFixed(3)}×` : "-"), value: (c) => c.speedup ?? 0 },
          timeColumn("time", cells, timeOf),
          ...(beyond ? [{ title: "fits", text: (c: Cell) => (c.error ? "-" : c.fits ? "yes" : "no") }] : []),
          { title: "without a forecast", text: (c) => c.error ?? "" },
        ], { caption: "Every scenario", filter: true, most: 500 }))),
  );
}

function sensitivityPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const all = result.sensitivity;
  const fastest = result.baseline.fastest;
  const names = all[0]?.dispatchers.map((one) => one.dispatcher) ?? [];
  const of = (s: Whatif["sensitivity"][number], name: string) => s.dispatchers.find((one) => one.dispatcher === name)?.elasticity;
  const first = all[0]!;
  const draw = (name: string) => {
    const rows = all.filter((s) => of(s, name)).sort((a, b) => Math.abs(of(b, name)!.value) - Math.abs(of(a, name)!.value));
    return [intervalDots(`Change of the time of ${name} with 1 % more of each number`, rows.map((s) => {
      const e = of(s, name)!;
      return { label: s.what, at: e.value, low: e.low, high: e.high, good: e.value < 5e-4,
        note: `${s.what} (${s.path}), now ${s.value}\n${e.value.toFixed(3)} % (${e.low.toFixed(3)} to ${e.high.toFixed(3)})` };
    }), "change of the time [%] when the number grows by 1 %", signedTick)];
  };
  const e = of(first, fastest)!;
  // Rates up and times down, all at once.
  const together = result.together.find((one) => one.dispatcher === fastest)?.elasticity;
  return report(data, "Which hardware number matters?", about(result),
    [answer(`${fastest} depends most on ${first.what}: 10 % more of it changes the time by ${signedPercent(1.1 ** e.value - 1)}.`,
      together ? `10 % better in everything at once changes it by ${signedPercent(1.1 ** together.value - 1)}.` : undefined)],
    section("Sensitivity", "By how many percent does the time change when a number grows by 1 %?",
      ...chosen("Dispatcher", named(names), fastest, draw),
      table(all, [
        { title: "number", text: (s) => s.what }, { title: "path", text: (s) => s.path }, { title: "now", numeric: true, text: (s) => s.value },
        ...names.map((name) => ({ title: name, numeric: true, text: (s: Whatif["sensitivity"][number]) => { const x = of(s, name); return x ? `${x.value.toFixed(3)} (${x.low.toFixed(3)} to ${x.high.toFixed(3)})` : "-"; },
          value: (s: Whatif["sensitivity"][number]) => of(s, name)?.value ?? 0 })),
      ], { caption: "Elasticity of the time" })),
  );
}

function bestPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  const plans = result.best;
  const name = (p: Whatif["best"][number]) => `${sizesOf(p.parallel, "").join(" ") || "one rank"} ${p.dispatcher}`;
  const labels = plans.map((plan, i) => `${i + 1}. ${name(plan)}`);
  const unit = timeUnit(Math.max(...plans.map((plan) => plan.forecast.time_us.high)));
  const categories = data.categories.filter((c) => plans.some((plan) => (plan.forecast.breakdown_us[c] ?? 0) > 0));
  const first = plans[0]!;
  const count = result.plans;
  const tied = plans.filter((plan) => plan.tie_group === first.tie_group).length - 1;
  return report(data, `The best plans for ${first.forecast.gpus} GPUs`, `${about(result)} A training step of ${number(first.forecast.tokens)} tokens.`,
    [answer(`${name(first)} is the fastest plan found: ${time(first.forecast.time_us.value)} a step (90 % interval ${time(first.forecast.time_us.low)} to ${time(first.forecast.time_us.high)}), ` +
      `${number(Math.round(first.forecast.tokens_per_s_per_gpu))} tokens per second and GPU${first.forecast.fits ? "" : "; it does not fit the memory"}.` +
      (tied > 0 ? ` ${tied} ${tied === 1 ? "other" : "others"} may be as good: no draw tells ${tied === 1 ? "it" : "them"} apart surely.` : ""),
      `${number(count.candidates)} combinations: ${number(count.forecast)} forecast, ${number(count.slower)} surely no faster, ` +
      `${number(count.does_not_fit)} do not fit, ${number(count.illegal)} illegal, ${number(count.skipped)} left open; ${result.method}.`)],
    section("Plans", "How far apart are they? Whiskers are 90 % intervals; grey bars do not fit the memory.",
      intervalBars("Time of a step under each plan", plans.map((plan, i) => ({
        label: labels[i]!, ...plan.forecast.time_us, best: i === 0, faded: !plan.forecast.fits, note: `${labels[i]}\n${time(plan.forecast.time_us.value, unit)}` })), unit, "time of a step"),
      table(plans, [
        { title: "plan", text: (p) => name(p) },
        { title: `step [${unit.name}]`, numeric: true, text: (p) => (p.forecast.time_us.value * unit.factor).toFixed(2), value: (p) => p.forecast.time_us.value },
        { title: "tokens/s/GPU", numeric: true, text: (p) => number(Math.round(p.forecast.tokens_per_s_per_gpu)), value: (p) => p.forecast.tokens_per_s_per_gpu },
        { title: "MFU", numeric: true, text: (p) => percent(p.forecast.mfu), value: (p) => p.forecast.mfu },
        { title: "microbatches", numeric: true, text: (p) => `${p.parallel["microbatches"]} x ${p.parallel["micro_batch"]}`, value: (p) => p.parallel["microbatches"]! },
        { title: "recompute", text: (p) => p.training.recompute },
        byteColumn("memory", plans, (p) => p.forecast.peak_memory_bytes.max),
        { title: "fits", text: (p) => (p.forecast.fits ? "yes" : "no") },
      ], { caption: "Plans, the fastest first", best: (p) => p === first })),
    section("Where the time goes", "What do the plans trade against each other? The parts add up to its time.",
      stackedBars("Parts of a step under each plan",
        plans.flatMap((plan, i) => categories.map((c) => ({ label: labels[i]!, part: c, value: plan.forecast.breakdown_us[c] ?? 0,
          note: `${labels[i]}\n${words(c)} ${time(plan.forecast.breakdown_us[c] ?? 0, unit)}` }))),
        labels, categories, categoryColor, { unit, axis: "time of the stage that ends last", totals: true })),
  );
}

export function whatifPage(data: ReportData<Whatif>): HTMLElement[] {
  const result = data.result;
  if (result.map) return mapPage(data);
  if (result.crossovers) return crossoverPage(data);
  if (result.ranking) return eachPage(data);
  if (result.sensitivity) return sensitivityPage(data);
  if (result.best) return bestPage(data);
  return changesPage(data);
}
