// The report of `validate`: how far the forecast is from what was measured, in total and by component.
import type { ReportData } from "./data";
import { section, select, h } from "./dom";
import { intervalBars, ratioDots } from "./charts";
import { percent, signedPercent, time, timeUnit, words } from "./format";
import { answer, header, reproduce, warnings } from "./page";
import { table } from "./table";
import { timelineChart } from "./timeline";

interface Triple {
  forecast_us: number;
  measured_us: number;
  error: number;
  low_us: number;
  high_us: number;
}

interface Case {
  recording?: string;
  passes?: string;
  iteration: Triple;
  components: Record<string, Triple>;
  mean_abs_component_error: number;
}

const inside = (t: Triple) => t.low_us <= t.measured_us && t.measured_us <= t.high_us;

function note(name: string, t: Triple): string {
  return `${words(name)}\nforecast ${time(t.forecast_us)} (${time(t.low_us)} to ${time(t.high_us)})\nmeasured ${time(t.measured_us)}, ${signedPercent(t.error)}`;
}

function dots(description: string, rows: [string, Triple][]): HTMLElement {
  const usable = rows.filter(([, t]) => t.measured_us > 0);
  return h("div", {},
    h("p", { class: "key" }, "Line: 90 % interval. Round: the measurement lies inside it; diamond: outside."),
    ratioDots(description, usable.map(([name, t]) => ({
      label: words(name), forecast: t.forecast_us, low: t.low_us, high: t.high_us, measured: t.measured_us, note: note(name, t) }))));
}

function componentTable(one: Case): HTMLElement {
  return table([["iteration", one.iteration] as [string, Triple], ...Object.entries(one.components)], [
    { title: "operation", text: ([name]) => words(name) },
    { title: "forecast", numeric: true, text: ([, t]) => time(t.forecast_us), value: ([, t]) => t.forecast_us },
    { title: "low", numeric: true, text: ([, t]) => time(t.low_us), value: ([, t]) => t.low_us },
    { title: "high", numeric: true, text: ([, t]) => time(t.high_us), value: ([, t]) => t.high_us },
    { title: "measured", numeric: true, text: ([, t]) => time(t.measured_us), value: ([, t]) => t.measured_us },
    { title: "error", numeric: true, text: ([, t]) => signedPercent(t.error), value: ([, t]) => t.error },
    { title: "inside", text: ([, t]) => (inside(t) ? "yes" : "no") },
  ], { caption: "Forecast and measurement" });
}

function single(data: ReportData): HTMLElement[] {
  const one = data.result as unknown as Case;
  const t = one.iteration;
  const unit = timeUnit(Math.max(t.high_us, t.measured_us));
  return [
    header("Forecast against measurement", String((data.result.inputs.command ?? []).join(" ")), data.verb),
    answer(`The forecast of the iteration is ${time(t.forecast_us, unit)}, measured were ${time(t.measured_us, unit)}: ${signedPercent(t.error)}, ` +
      `${inside(t) ? "inside" : "outside"} the 90 % interval (${time(t.low_us, unit)} to ${time(t.high_us, unit)}).`,
      `Over the components the mean absolute error is ${percent(one.mean_abs_component_error)}.`),
    ...(warnings(data.result) ? [warnings(data.result)!] : []),
    section("Time", "How far off is the iteration?",
      intervalBars("Forecast with its 90 % interval, and measurement", [
        { label: "forecast", value: t.forecast_us, low: t.low_us, high: t.high_us, best: true, note: note("iteration", t) },
        { label: "measured", value: t.measured_us, low: t.measured_us, high: t.measured_us, note: note("iteration", t) },
      ], unit, "time")),
    section("Components", "Is it right for the right reasons?",
      dots("Forecast against measurement for every component", [["iteration", t], ...Object.entries(one.components)]),
      componentTable(one)),
    ...(data.timelines.length > 0
      ? [section("Timeline", "Where do forecast and measurement part? Clocks of nodes are not comparable: each measured node starts at zero.",
          timelineChart(data.timelines, data.categories, "Forecast and measured timeline"))] : []),
    reproduce(data),
  ];
}

function many(data: ReportData): HTMLElement[] {
  const result = data.result;
  const cases = result.recordings as Case[];
  const name = (one: Case) => `${one.recording} · ${one.passes}`;
  const covered = cases.filter((one) => inside(one.iteration)).length;
  const parts = [...new Set(cases.flatMap((one) => Object.keys(one.components)))];
  const holder = h("div");
  const draw = (index: string) => {
    const one = cases[Number(index)]!;
    holder.replaceChildren(
      dots(`Components of ${name(one)}`, [["iteration", one.iteration], ...Object.entries(one.components)]), componentTable(one));
  };
  draw("0");
  return [
    header("Forecasts against measurements", `${cases.length} forecasts of recorded runs.`, data.verb),
    answer(`The mean absolute error of the iteration is ${percent(result.mean_abs_iteration_error)}, the worst ${percent(result.worst_abs_iteration_error)}; ` +
      `the measurement lies inside the 90 % interval in ${covered} of ${cases.length} cases.`),
    ...(warnings(result) ? [warnings(result)!] : []),
    section("Iterations", "How far off is each forecast?",
      dots("Forecast against measurement for every recording", cases.map((one) => [name(one), one.iteration])),
      table(cases, [
        { title: "recording", text: (c) => c.recording ?? "" },
        { title: "forecast from", text: (c) => c.passes ?? "" },
        { title: "forecast", numeric: true, text: (c) => time(c.iteration.forecast_us), value: (c) => c.iteration.forecast_us },
        { title: "low", numeric: true, text: (c) => time(c.iteration.low_us), value: (c) => c.iteration.low_us },
        { title: "high", numeric: true, text: (c) => time(c.iteration.high_us), value: (c) => c.iteration.high_us },
        { title: "measured", numeric: true, text: (c) => time(c.iteration.measured_us), value: (c) => c.iteration.measured_us },
        { title: "error", numeric: true, text: (c) => signedPercent(c.iteration.error), value: (c) => c.iteration.error },
        ...parts.map((part) => ({
          title: words(part), numeric: true, text: (c: Case) => (c.components[part] ? signedPercent(c.components[part]!.error) : "-"),
          value: (c: Case) => c.components[part]?.error ?? 0,
        })),
      ], { caption: "All recordings; the right columns are errors of components", filter: true })),
    section("Components", "Is it right for the right reasons?",
      h("div", { class: "controls" },
        select("Recording", cases.map((one, i) => ({ value: `${i}`, label: name(one) })), "0", draw)),
      holder),
    reproduce(data),
  ];
}

export function validatePage(data: ReportData): HTMLElement[] {
  return data.result.recordings ? many(data) : single(data);
}
