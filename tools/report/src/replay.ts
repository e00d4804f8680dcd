// The report of `replay`: how long the iteration takes, where it goes, who waits for whom.
import type { ReportData } from "./data";
import { h, section } from "./dom";
import { intervalBars, stackedBars } from "./charts";
import { number, percent, signedPercent, time, timeUnit, words } from "./format";
import { matrixView } from "./matrix";
import { answer, report } from "./page";
import { categoryColor, causeColor } from "./palette";
import { rankGrid } from "./ranks";
import type { Replay } from "./results";
import { table, timeColumn } from "./table";
import { timelineChart } from "./timeline";

const kStates = ["busy_us", "exposed_comm_us", "straggler_wait_us", "bubble_us", "host_us"] as const;
const kStateNames: Record<string, string> = {
  busy_us: "computing", exposed_comm_us: "transfer", straggler_wait_us: "straggler wait", bubble_us: "bubble", host_us: "host",
};
const kStateColors: Record<string, string> = {
  computing: "attention", transfer: "dispatch", "straggler wait": "straggler_wait", bubble: "bubble", host: "host_sync",
};

export function replayPage(data: ReportData<Replay>): HTMLElement[] {
  const result = data.result;
  const iteration = result.iteration_us;
  const unit = timeUnit(iteration.high);
  const measured = result.measured_iteration_us;
  const ranks = result.ranks;
  const shares = Object.entries(result.attribution?.shares_us ?? {});
  const largest = [...shares].sort((a, b) => b[1] - a[1])[0];
  const second = [...shares].sort((a, b) => b[1] - a[1])[1];

  const sentence =
    `One iteration takes ${time(iteration.value, unit)}` +
    (iteration.low < iteration.high ? ` (with probability 90 % between ${time(iteration.low, unit)} and ${time(iteration.high, unit)})` : "") +
    (measured ? `; measured: ${time(measured, unit)}, the forecast is ${signedPercent(iteration.value / measured - 1)}` : "") + ".";
  const because = largest
    ? `Most of it is ${words(largest[0])} (${percent(largest[1] / iteration.value, 0)})` +
      (second && second[1] > 0 ? `, then ${words(second[0])} (${percent(second[1] / iteration.value, 0)}).` : ".")
    : undefined;

  const bars = [{ label: "forecast", ...iteration, best: true, note: `forecast ${time(iteration.value, unit)}` }];
  if (measured) bars.push({ label: "measured", value: measured, low: measured, high: measured, best: false, note: `measured ${time(measured, unit)}` });

  const path = result.critical_path ?? [];
  const waits = result.attribution?.ranks ?? [];
  const layers = result.attribution?.layers ?? [];
  const ops = Object.entries(result.ops ?? {});
  const othersWait: number[] = ranks.map(() => 0);
  for (const wait of waits) othersWait[wait.rank] = wait.others_wait_us;
  const values: Record<string, number[]> = { others: waits.length > 0 ? othersWait : [] };
  for (const state of kStates) values[state] = ranks.map((rank) => rank[state] ?? 0);
  const effects = result.effects ?? [];

  return report(data, result.topology ? `Iteration of ${result.topology}` : "Iteration",
      `On ${result.inputs.cluster ?? "the cluster"}, ${ranks.length} ranks, ${result.microbatches} microbatches` +
      (result.changes ? `, with ${result.changes}` : "") + ".",
    [answer(sentence, because)],
    section("Time", "How long is an iteration, and how sure is that? The whisker is the 90 % interval.",
      intervalBars("Time of the iteration with its 90 % interval", bars, unit, "time")),
    shares.length > 0 && section("Where it goes", "What would the iteration lose without each cause? Causes are taken away in this order and stay away; each accounts for what the iteration loses at its turn.",
      stackedBars("The iteration by cause; the parts add up to it",
        shares.map(([cause, us]) => ({ label: "iteration", part: cause, value: us, note: `${words(cause)} ${time(us, unit)}, ${percent(us / iteration.value)}` })),
        ["iteration"], shares.map(([cause]) => cause), causeColor,
        { unit, axis: "time", totals: true }),
      table(shares.map(([cause, us]) => ({ cause, us })), [
        { title: "cause", text: (s) => words(s.cause) },
        { title: `time [${unit.name}]`, numeric: true, text: (s) => (s.us * unit.factor).toFixed(2), value: (s) => s.us },
        { title: "share", numeric: true, text: (s) => percent(s.us / iteration.value), value: (s) => s.us },
      ], { caption: "Causes" })),
    section("Ranks", "Which ranks make the others wait, and which have nothing to do?",
      rankGrid([{ label: "", values }], [
        { key: "others", label: "others wait for it", text: (v, most) => time(v, timeUnit(most)), fromZero: true },
        ...kStates.map((state) => ({ key: state, label: kStateNames[state]!, text: (v: number, most: number) => time(v, timeUnit(most)), fromZero: true })),
      ], data.gpus_per_node),
      ranks.length <= 64
        ? stackedBars("What each rank does during the iteration; the parts add up to it",
            ranks.flatMap((rank) => kStates.map((state) => ({
              label: `rank ${rank["rank"]}`, part: kStateNames[state]!, value: rank[state] ?? 0,
              note: `rank ${rank["rank"]}\n${kStateNames[state]} ${time(rank[state] ?? 0, unit)}` }))),
            ranks.map((rank) => `rank ${rank["rank"]}`), kStates.map((state) => kStateNames[state]!),
            (part) => categoryColor(kStateColors[part] ?? "other"), { unit, axis: "time" })
        : null,
      h("details", {}, h("summary", {}, "Numbers per rank"),
        table(ranks, [
          { title: "rank", numeric: true, text: (r) => `${r["rank"]}`, value: (r) => r["rank"]! },
          ...kStates.map((state) => ({
            title: `${kStateNames[state]} [${unit.name}]`, numeric: true,
            text: (r: typeof ranks[number]) => ((r[state] ?? 0) * unit.factor).toFixed(2), value: (r: typeof ranks[number]) => r[state] ?? 0,
          })),
        ], { caption: "Numbers per rank", filter: ranks.length > 16 }))),
    data.matrices.length > 0 && section("Who sends how much to whom",
      "Bytes of the iteration. Exchanges follow their split sizes; every other collective is spread evenly over its members.",
      matrixView(data.matrices)),
    layers.length > 0 && section("Layers", "In which layers do ranks wait most?",
      table(layers, [
        { title: "layer", numeric: true, text: (l) => `${l.layer}`, value: (l) => l.layer },
        { title: "stage", numeric: true, text: (l) => `${l.stage}`, value: (l) => l.stage },
        timeColumn("waiting of all ranks", layers, (l) => l.others_wait_us),
      ], { caption: "Waiting by layer" })),
    data.timelines.length > 0 && section("Timeline", "What happens when, on every stream?", timelineChart(data.timelines, data.categories, "Timeline of the iteration")),
    ops.length > 0 && section("Operations", "What do the steps of the schedule take?",
      table(ops.map(([op, about]) => ({ op, ...about })), [
        { title: "operation", text: (o) => words(o.op) },
        { title: "count", numeric: true, text: (o) => number(o.count), value: (o) => o.count },
        timeColumn("mean", ops.map(([op, about]) => ({ op, ...about })), (o) => o.mean_us),
      ], { caption: "Mean over ranks and microbatches, waiting included" })),
    effects.length > 0 && section("Constants that were added", "What can a recording of one GPU not show?",
      table(effects, [
        { title: "effect", text: (e) => words(e.name) },
        { title: "value", numeric: true, text: (e) => `${number(e.value)} ${e.unit}`, value: (e) => e.value },
        { title: "standard deviation", numeric: true, text: (e) => number(e.sigma), value: (e) => e.sigma },
        { title: "source", text: (e) => e.source },
      ], { caption: "Constants" })),
    path.length > 0 && section("Critical path", "What would have to be faster for the iteration to be shorter?",
      h("details", {}, h("summary", {}, `${path.length} pieces from start to end`),
        table(path, [
          timeColumn("from", path, (p) => p.from_us), timeColumn("takes", path, (p) => p.to_us - p.from_us),
          { title: "rank", numeric: true, text: (p) => `${p.rank}`, value: (p) => p.rank },
          { title: "what", text: (p) => p.task },
          { title: "starts after", text: (p) => p.waited_for },
          { title: "recorded at", text: (p) => p.recorded_at ?? "" },
        ], { caption: "Critical path", filter: true }))),
  );
}
