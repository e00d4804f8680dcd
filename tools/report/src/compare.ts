// The report of `compare`: which dispatcher, by how much, how sure, and why.
import type { Estimate, ReportData } from "./data";
import { checkbox, h, section, select } from "./dom";
import { intervalBars, lines, stackedBars, type StackPiece } from "./charts";
import { bytes, byteUnit, nameOf, number, percent, time, timeUnit, words } from "./format";
import { memoryTree } from "./memory";
import { matrixView } from "./matrix";
import { answer, report } from "./page";
import { categoryColor, dispatcherColor, dispatcherLine, memoryColor } from "./palette";
import { passLegend, passVariable, pipelinePictures } from "./pipeline";
import { rankGrid } from "./ranks";
import { byteColumn, table, timeColumn, type Column } from "./table";
import type { Compare } from "./results";
import { timelineChart } from "./timeline";

type Scenario = Compare["scenarios"][number];
type Excluded = Compare["excluded"][number];

// Parts of the memory of the worst rank.
const kMemoryParts = ["parameters", "gradients", "optimizer", "activations", "transient", "persistent"];
const memoryPart = (s: Scenario, part: string) => s.memory[`${part}_bytes` as "total_bytes"];

// A rule without the place in a file where the dispatcher was named.
export function excludedBecause(one: Excluded): string {
  const at = one.rule.indexOf(`${one.dispatcher.split(":")[0]}: `);
  return at < 0 ? one.rule : one.rule.slice(at);
}

type Order = "time" | "asked" | "memory" | "bytes";

function about(result: Compare): string {
  const s = result.inputs.scenario;
  if (!s) return "";
  const p = s.parallel ?? {};
  const sizes = ["tp", "cp", "ep", "etp", "dp", "pp", "vpp"].filter((k) => (p[k] ?? 1) > 1 || k === "ep").map((k) => `${k.toUpperCase()} ${p[k]}`);
  return `${s.scope === "step" ? "One training step" : "One MoE layer"}${s.train === false ? ", forward pass alone (no serving)" : s.scope === "step" ? "" : ", forward and backward"}; ` +
    `${sizes.join(", ")}; ${number(p.seq ?? 0)} tokens per sequence, top-${s.topk}; routing ${nameOf(s.routing, "as given")}.`;
}

// The run that the forecasts are anchored to: how far off they were, and what it told.
function anchored(anchor: NonNullable<Compare["anchor"]>): HTMLElement {
  const unit = timeUnit(Math.max(...anchor.measured.map((one) => Math.max(one.time_us, one.forecast_us.high))));
  const factor = (e: Estimate) => `${e.value.toFixed(2)}× (${e.low.toFixed(2)} to ${e.high.toFixed(2)})`;
  return h("details", { class: "warnings", id: "anchor", open: true }, h("summary", {}, "Your run"),
    h("ul", {}, ...anchor.measured.map((one) => h("li", {},
      `${one.dispatcher} takes ${time(one.time_us, unit)}; the forecast was ${time(one.forecast_us.value, unit)} (${time(one.forecast_us.low, unit)} to ${time(one.forecast_us.high, unit)})`))),
    !anchor.explained
      ? h("ul", {}, ...(anchor.suspects.length > 0
          ? anchor.suspects.map((one) => h("li", {}, `with ${one.path} ${one.value} it would take ${time(one.time_us, unit)}: say so if the run had it`))
          : [h("li", {}, "No other setting that moesim tries explains it: check the model, the plan and the cluster.")]))
      : anchor.moved.length > 0
        ? table(anchor.moved, [
            { title: "learned", text: (one) => one.parameter },
            { title: "before", text: (one) => factor(one.before) }, { title: "now", text: (one) => factor(one.after) },
          ], { caption: "What the run told, as factors of what the profile says" })
        : null);
}

function turning(around: NonNullable<Compare["around"]>): HTMLElement {
  const turns = around.filter((one) => one.below || one.above);
  const all = [...turns, ...around.filter((one) => !turns.includes(one))];
  return section("What would turn it", turns.length === 0
    ? "No change of one number of the machine or the plan makes another dispatcher the fastest, as far as was tried."
    : `Which change, by itself, makes another dispatcher the fastest? ${turns.length} of ${around.length} do. Times alone, without intervals.`,
    table(all, [
      { title: "number", text: (one) => one.what },
      { title: "now", numeric: true, text: (one) => one.now },
      { title: "down to", text: (one) => (one.below ? `${one.below.dispatcher} at ${one.below.value}` : one.from === one.now ? "-" : `the same at ${one.from}`) },
      { title: "up to", text: (one) => (one.above ? `${one.above.dispatcher} at ${one.above.value}` : one.to === one.now ? "-" : `the same at ${one.to}`) },
      { title: "path", text: (one) => one.path },
    ], { caption: "The nearest value on each side with another fastest dispatcher, of those that were tried" }));
}

// A run that the forecast does not explain has no answer.
export function unexplained(result: Compare): HTMLElement[] | null {
  return result.anchor && !result.anchor.explained ? [answer(result.answer), anchored(result.anchor)] : null;
}

export function comparePage(data: ReportData<Compare>): HTMLElement[] {
  const result = data.result;
  // The interval of the host that is assumed, as the sentence has it.
  const scenarios = result.scenarios.map((s) => (s.hosts ? { ...s, time_us: s.hosts.tuned_us } : s));
  // None is marked where none is recommended.
  const recommended = result.recommendation;
  const winner = ["clear", "safe", "only_one"].includes(recommended.verdict) ? recommended.dispatcher : null;
  const name = result.inputs.scenario;
  const step = name?.["scope"] === "step";
  const unit = timeUnit(Math.max(...scenarios.map((s) => s.time_us.high)));
  const hidden = new Set<string>();
  let order: Order = "time";
  let share = false;

  const chosen = () => {
    const list = scenarios.filter((s) => !hidden.has(s.dispatcher));
    const key: Record<Order, (s: Scenario) => number> = {
      time: (s) => s.time_us.value, asked: (s) => scenarios.indexOf(s),
      memory: (s) => s.peak_memory_bytes.max, bytes: (s) => s.tx_bytes_per_rank.mean,
    };
    return list.sort((a, b) => key[order](a) - key[order](b));
  };

  const categories = data.categories.filter((c) => scenarios.some((s) => (s.breakdown_us[c] ?? 0) > 0));
  const bars = h("div");
  const stack = h("div");
  const memory = h("div");
  const ranks = h("div");

  const draw = () => {
    const list = chosen();
    if (list.length === 0) {
      for (const holder of [bars, stack, memory, ranks]) holder.replaceChildren(h("p", {}, "No dispatcher is chosen."));
      return;
    }
    bars.replaceChildren(intervalBars(
      "Time of each dispatcher with its 90 % interval; the table below has the numbers",
      list.map((s) => ({
        label: s.dispatcher, ...s.time_us, best: s.dispatcher === winner, faded: !s.ranked, color: dispatcherColor(s.dispatcher),
        note: `${s.dispatcher}\n${time(s.time_us.value, unit)} (${time(s.time_us.low, unit)} to ${time(s.time_us.high, unit)})` +
          (s.hosts ? `\non an untuned host ${time(s.hosts.untuned_us.low, unit)} to ${time(s.hosts.untuned_us.high, unit)}` : "") +
          (s.ranked ? "" : `\ncannot be chosen: ${s.not_ranked_because}`),
      })), unit, "time"));
    const pieces: StackPiece[] = list.flatMap((s) => categories.map((c) => ({
      label: s.dispatcher, part: c, value: s.breakdown_us[c] ?? 0,
      note: `${s.dispatcher}\n${words(c)} ${time(s.breakdown_us[c] ?? 0, unit)}, ${percent((s.breakdown_us[c] ?? 0) / s.time_us.value)}`,
    })));
    stack.replaceChildren(stackedBars(
      "Where the time of each dispatcher goes; the parts add up to the time", pieces, list.map((s) => s.dispatcher),
      categories, categoryColor, { unit, axis: step ? "time of the stage that ends last" : "time of the rank that ends last", share, totals: true }));
    const limit = list[0]!.memory.limit_bytes;
    const memoryUnit = byteUnit(Math.max(limit, ...list.map((s) => s.memory.total_bytes)));
    memory.replaceChildren(stackedBars(
      "Memory of the worst rank under each dispatcher, beside the limit",
      list.flatMap((s) => kMemoryParts.map((part) => ({
        label: s.dispatcher, part, value: memoryPart(s, part),
        note: `${s.dispatcher}\n${part} ${bytes(memoryPart(s, part))}`,
      }))),
      list.map((s) => s.dispatcher), kMemoryParts, memoryColor,
      { unit: memoryUnit, axis: "memory", totals: true, limit: { value: limit, label: `limit ${bytes(limit)}` } }));
    for (const s of list) {
      const causes = memoryTree(s.dispatcher, s.memory);
      if (causes) memory.append(causes);
    }
    const curves = list.filter((s) => s.memory.curve.length);
    if (curves.length > 0) {
      // Memory of the layer above the constant part: only this differs between dispatchers.
      const base = Math.min(...curves.flatMap((s) => s.memory.curve.map((p) => p.bytes)));
      const heldUnit = byteUnit(Math.max(...curves.flatMap((s) => s.memory.curve.map((p) => p.bytes - base))));
      const layerUnit = timeUnit(Math.max(...curves.flatMap((s) => s.memory.curve.map((p) => p.time_us))));
      memory.append(h("h3", {}, "Over the layer"),
        h("p", { class: "key" }, `What the worst rank holds above the ${bytes(base)} that stay: rows, saved activations, buffers.`),
        lines("Memory of the worst rank over the layer, above what stays", curves.map((s) => ({
          name: s.dispatcher, color: dispatcherLine(s.dispatcher),
          points: s.memory.curve.map((p) => {
            const y = (p.bytes - base) * heldUnit.factor;
            return { x: p.time_us * layerUnit.factor, y, low: y, high: y, note: `${s.dispatcher}\n${p.pass}, ${time(p.time_us, layerUnit)}: ${p.what}\n${bytes(p.bytes - base)} above what stays` };
          }) })), { x: `time [${layerUnit.name}]`, y: `held [${heldUnit.name}]`, steps: true }));
    }
    const rows = list.filter((s) => s.ranks).map((s) => ({
      label: s.dispatcher,
      values: {
        overload: s.ranks!.map((r) => (r["balanced_rows"] ? r["computed_rows"]! / r["balanced_rows"]! : 0)),
        computed: s.ranks!.map((r) => r["computed_rows"]!),
        sent: s.ranks!.map((r) => r["tx_bytes"]!), received: s.ranks!.map((r) => r["rx_bytes"]!),
        expert: s.ranks!.map((r) => r["expert_us"]!), transfer: s.ranks!.map((r) => r["transfer_us"]!),
        wait: s.ranks!.map((r) => r["wait_us"]!),
      },
    }));
    if (rows.length > 0)
      ranks.replaceChildren(rankGrid(rows, [
        { key: "overload", label: "overload (rows against the balanced share)", text: (v) => v.toFixed(2) },
        { key: "computed", label: "rows computed", text: (v) => number(v) },
        { key: "wait", label: "waits for others", text: (v, most) => time(v, timeUnit(most)), fromZero: true },
        { key: "sent", label: "bytes sent", text: (v, most) => bytes(v, byteUnit(most)) },
        { key: "received", label: "bytes received", text: (v, most) => bytes(v, byteUnit(most)) },
        { key: "expert", label: "time of the experts", text: (v, most) => time(v, timeUnit(most)) },
        { key: "transfer", label: "time of transfers", text: (v, most) => time(v, timeUnit(most)) },
      ], data.gpus_per_node));
  };
  draw();

  const controls = h("div", { class: "controls", id: "choose" },
    select<Order>("Order", [{ value: "time", label: "fastest first" }, { value: "asked", label: "as asked" },
      { value: "memory", label: "least memory first" }, { value: "bytes", label: "fewest bytes first" }], order,
      (value) => { order = value; draw(); }),
    checkbox("parts as shares", share, (value) => { share = value; draw(); }),
    h("fieldset", {}, h("legend", {}, "Dispatchers"),
      ...scenarios.map((s) => checkbox(s.dispatcher, true, (on) => {
        if (on) hidden.delete(s.dispatcher); else hidden.add(s.dispatcher);
        draw();
      }))));

  const numbers = table(scenarios, [
    { title: "dispatcher", text: (s) => s.dispatcher },
    { title: `time [${unit.name}]`, numeric: true, text: (s) => (s.time_us.value * unit.factor).toFixed(1), value: (s) => s.time_us.value },
    { title: "low", numeric: true, text: (s) => (s.time_us.low * unit.factor).toFixed(1), value: (s) => s.time_us.low },
    { title: "high", numeric: true, text: (s) => (s.time_us.high * unit.factor).toFixed(1), value: (s) => s.time_us.high },
    ...(scenarios.some((s) => s.fastest_probability !== undefined) ? [
      { title: "P(fastest)", numeric: true, text: (s: Scenario) => s.fastest_probability?.toFixed(2) ?? "-", value: (s: Scenario) => s.fastest_probability ?? -1 },
      { title: "loss at most (90 %)", numeric: true, text: (s: Scenario) => (s.loss_at_most === undefined ? "-" : percent(s.loss_at_most)), value: (s: Scenario) => s.loss_at_most ?? Infinity },
    ] : []),
    ...(step ? [
      { title: "tokens/s/GPU", numeric: true, text: (s: Scenario) => number(Math.round(s.tokens_per_s_per_gpu)), value: (s: Scenario) => s.tokens_per_s_per_gpu },
      { title: "MFU", numeric: true, text: (s: Scenario) => percent(s.mfu), value: (s: Scenario) => s.mfu },
    ] : []) as Column<Scenario>[],
    byteColumn("sent per rank", scenarios, (s) => s.tx_bytes_per_rank.mean),
    byteColumn("most", scenarios, (s) => s.tx_bytes_per_rank.max),
    { title: "host syncs", numeric: true, text: (s) => `${s.host_syncs.forward}+${s.host_syncs.backward}`, value: (s) => s.host_syncs.forward + s.host_syncs.backward },
    { title: "overload", numeric: true, text: (s) => s.overload.max.toFixed(2), value: (s) => s.overload.max },
    ...(scenarios.some((s) => s.dropped_rows > 0) ? [
      { title: "rows dropped", numeric: true, text: (s: Scenario) => number(s.dropped_rows), value: (s: Scenario) => s.dropped_rows },
    ] : []),
    byteColumn("memory", scenarios, (s) => s.peak_memory_bytes.max),
    { title: "fits", text: (s) => (!s.fits ? `no (+${bytes(s.missing_bytes ?? 0)})` : "yes") },
    { title: "P(fits)", numeric: true, text: (s) => s.fits_probability.toFixed(2), value: (s) => s.fits_probability },
  ], { caption: "All numbers", best: (s) => s.dispatcher === winner, filter: scenarios.length > 4, sortBy: 1 });

  const parts = table(scenarios, [
    { title: "dispatcher", text: (s) => s.dispatcher },
    ...categories.map((c) => ({
      title: `${words(c)} [${unit.name}]`, numeric: true, text: (s: Scenario) => ((s.breakdown_us[c] ?? 0) * unit.factor).toFixed(1),
      value: (s: Scenario) => s.breakdown_us[c] ?? 0,
    })),
  ], { caption: "Parts of the time", best: (s) => s.dispatcher === winner });

  const excluded = result.excluded;
  const left = [...excluded.map((one) => ({ dispatcher: one.dispatcher, rule: excludedBecause(one) })), ...scenarios.filter((s) => !s.ranked).map((s) => ({ dispatcher: s.dispatcher, rule: `cannot be chosen: ${s.not_ranked_because}` }))];
  const pipelines = data.timelines.filter((one) => one.of === "stage");
  const layers = data.timelines.filter((one) => one.of !== "stage");
  const bubble = new Map(scenarios.map((s) => [s.dispatcher, (s.breakdown_us["bubble"] ?? 0) / s.time_us.value]));
  const steps = result.step_collectives ?? [];
  return report(data, `${nameOf(result.model, nameOf(name?.["model"], "A model"))} on ${nameOf(name?.["cluster"], "a machine of its own")}`, about(result),
    [answer(result.answer, result.because === result.answer ? undefined : result.because),
      recommended.settle && h("p", { class: "key" }, "To settle it: ", h("code", {}, recommended.settle)),
      result.anchor && anchored(result.anchor)],
    section("Time", "Which dispatcher is fastest, and how sure is that? Whiskers are 90 % intervals; the errors that all share cancel in the probability.", controls, bars, numbers),
    result.around && turning(result.around),
    section("Where the time goes", step ? "What does the pipeline stage that ends last do all the time? The parts add up to the bar above." : "What does the rank that ends last do all the time? The parts add up to the bar above.", stack, parts),
    section("Memory", "Does it fit? The worst rank of the job, beside what its GPU has.", memory),
    scenarios.some((s) => s.ranks) && section("Ranks", "Who has too much to do, and who waits for them?", ranks),
    data.matrices.length > 0 && section("Who sends how much to whom",
      "Bytes of one layer, all passes together. Exchanges follow their split sizes; a collective that is the same for all is spread evenly over its members.",
      matrixView(data.matrices)),
    pipelines.length > 0 && section("Pipeline", "Which pass runs when on every stage, and where does a stage wait?",
      pipelinePictures(data.pipelines, bubble, pipelines.length - data.pipelines.length),
      h("details", {}, h("summary", {}, "Every pass, to zoom and to read"),
        timelineChart(pipelines, data.categories, "Passes of the step", { id: "pipeline", colorOf: passVariable, legend: passLegend() }))),
    layers.length > 0 && section("Timeline", step ? "What happens when in one MoE layer, on every stream?" : "What happens when, on every stream?", timelineChart(layers, data.categories, "Timeline of the layer")),
    steps.length > 0 && section("Per training step", "What sharding adds once per step.", table(steps, [
      { title: "what", text: (s) => s.what }, { title: "operation", text: (s) => s.op },
      { title: "ranks", numeric: true, text: (s) => `${s.ranks}`, value: (s) => s.ranks },
      { title: "calls", numeric: true, text: (s) => `${s.calls}`, value: (s) => s.calls },
      byteColumn("sent", steps, (s) => s.tx_bytes), timeColumn("time", steps, (s) => s.time_us),
      ], { caption: "Collectives of parameters, gradients and optimizer, alone and one after the other" })),
    left.length > 0 && section("Left out", "Which dispatchers can not run here, or can not win?", table(left, [
      { title: "dispatcher", text: (e) => e.dispatcher }, { title: "rule", text: (e) => e.rule },
      ], { caption: "Dispatchers left out" })),
  );
}
