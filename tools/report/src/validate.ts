// The report of `validate`: how far the forecast is from what was measured, in total and by component.
import type { ReportData } from "./data";
import { chosen, h, section } from "./dom";
import { intervalBars, ratioDots, scatter } from "./charts";
import { percent, signedPercent, time, timeUnit, words } from "./format";
import { answer, report } from "./page";
import { lineColor } from "./palette";
import type { Validate, ValidateAll, ValidateDecisions, ValidateTraining } from "./results";
import { table, timeColumns } from "./table";
import { timelineChart } from "./timeline";

type Triple = Validate["iteration"];
type Case = ValidateAll["recordings"][number];

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

function componentTable(one: Pick<Case, "iteration" | "components">): HTMLElement {
  const rows = [["iteration", one.iteration] as [string, Triple], ...Object.entries(one.components)];
  return table(rows, [
    { title: "operation", text: ([name]) => words(name) },
    ...timeColumns(rows, [["forecast", ([, t]) => t.forecast_us], ["low", ([, t]) => t.low_us], ["high", ([, t]) => t.high_us], ["measured", ([, t]) => t.measured_us]]),
    { title: "error", numeric: true, text: ([, t]) => signedPercent(t.error), value: ([, t]) => t.error },
    { title: "inside", text: ([, t]) => (inside(t) ? "yes" : "no") },
  ], { caption: "Forecast and measurement" });
}

// "recording/scaling" against "recording/realistic": the ends of the folders that were named.
function about(data: ReportData<Validate>): string {
  const command = data.result.inputs.command ?? [];
  const after = (option: string) => {
    const word = command[command.indexOf(option) + 1];
    return command.includes(option) && word ? word.split("/").filter((part) => part).slice(-2).join("/") : "";
  };
  return after("--forecast") ? `Forecast from ${after("--forecast")}, measured by ${after("--measured")}.` : "";
}

function single(data: ReportData<Validate>): HTMLElement[] {
  const one = data.result;
  const t = one.iteration;
  const unit = timeUnit(Math.max(t.high_us, t.measured_us));
  return report(data, "Forecast against measurement", about(data),
    [answer(`The forecast of the iteration is ${time(t.forecast_us, unit)}, measured were ${time(t.measured_us, unit)}: ${signedPercent(t.error)}, ` +
      `${inside(t) ? "inside" : "outside"} the 90 % interval (${time(t.low_us, unit)} to ${time(t.high_us, unit)}).`,
      `Over the components the mean absolute error is ${percent(one.mean_abs_component_error)}.`)],
    section("Time", "How far off is the iteration?",
      intervalBars("Forecast with its 90 % interval, and measurement", [
        { label: "forecast", value: t.forecast_us, low: t.low_us, high: t.high_us, best: true, note: note("iteration", t) },
        { label: "measured", value: t.measured_us, low: t.measured_us, high: t.measured_us, note: note("iteration", t) },
      ], unit, "time")),
    section("Components", "Is it right for the right reasons?",
      dots("Forecast against measurement for every component", [["iteration", t], ...Object.entries(one.components)]),
      componentTable(one)),
    data.timelines.length > 0 && section("Timeline", "Where do forecast and measurement part? Clocks of nodes are not comparable: each measured node starts at zero.",
      timelineChart(data.timelines, data.categories, "Forecast and measured timeline")),
  );
}

function many(data: ReportData<ValidateAll>): HTMLElement[] {
  const result = data.result;
  const cases = result.recordings;
  const name = (one: Case) => `${one.recording} · ${one.passes}`;
  const covered = cases.filter((one) => inside(one.iteration)).length;
  const parts = [...new Set(cases.flatMap((one) => Object.keys(one.components)))];
  const draw = (index: string) => {
    const one = cases[Number(index)]!;
    return [dots(`Components of ${name(one)}`, [["iteration", one.iteration], ...Object.entries(one.components)]), componentTable(one)];
  };
  return report(data, "Forecasts against measurements", `${cases.length} ${cases.length === 1 ? "forecast of a recorded run" : "forecasts of recorded runs"}.`,
    [answer(`The mean absolute error of the iteration is ${percent(result.mean_abs_iteration_error)}, the worst ${percent(result.worst_abs_iteration_error)}; ` +
      `the measurement lies inside the 90 % interval in ${covered} of ${cases.length} cases.`)],
    section("Iterations", "How far off is each forecast?",
      dots("Forecast against measurement for every recording", cases.map((one) => [name(one), one.iteration])),
      table(cases, [
        { title: "recording", text: (c) => c.recording ?? "" },
        { title: "forecast from", text: (c) => c.passes ?? "" },
        ...timeColumns(cases, [["forecast", (c) => c.iteration.forecast_us], ["low", (c) => c.iteration.low_us], ["high", (c) => c.iteration.high_us], ["measured", (c) => c.iteration.measured_us]]),
        { title: "error", numeric: true, text: (c) => signedPercent(c.iteration.error), value: (c) => c.iteration.error },
        ...parts.map((part) => ({
          title: words(part), numeric: true, text: (c: Case) => (c.components[part] ? signedPercent(c.components[part]!.error) : "-"),
          value: (c: Case) => c.components[part]?.error ?? 0,
        })),
      ], { caption: "All recordings; the right columns are errors of components", filter: true })),
    section("Components", "Is it right for the right reasons?",
      ...chosen("Recording", cases.map((one, i) => ({ value: `${i}`, label: name(one) })), "0", draw)),
  );
}

// Published training steps, each forecast without a recording.
function training(data: ReportData<ValidateTraining>): HTMLElement[] {
  const result = data.result;
  const rows = result.rows;
  const covered = rows.filter((row) => row.low_us <= row.measured_us && row.measured_us <= row.high_us).length;
  const short = (text: string) => text.split("-")[0]!;
  const gpus = [...new Set(rows.map((row) => short(row.gpu)))];
  const draw = (by: string) => {
    const group = (row: typeof rows[number]) => (by === "gpu" ? short(row.gpu) : by === "model" ? row.model : row.source);
    const names = [...new Set(rows.map(group))];
    return [scatter("Forecast against measured time of every step, with the line where both are equal",
      rows.map((row) => ({ x: row.measured_us * 1e-6, y: row.forecast_us * 1e-6, series: group(row), front: false,
        note: `${row.model} on ${row.gpus} ${short(row.gpu)}\n${row.plan}\nforecast ${time(row.forecast_us)}, measured ${time(row.measured_us)}, ${signedPercent(row.error)}` })),
      names, (name) => lineColor(names.indexOf(name)), { x: "measured [s]", y: "forecast [s]", logX: true, logY: true, diagonal: true })];
  };
  const groups = result.groups;
  const skipped = result.skipped;
  return report(data, "Published training steps", `${rows.length} steps on ${gpus.join(", ")}, forecast without a recording.`,
    [answer(`The median absolute error is ${percent(result.median_abs_error)}; the measurement lies inside the 90 % interval in ${covered} of ${rows.length} steps.`)],
    section("Forecast and measurement", "How far is each point from the line where both are equal?",
      ...chosen("Colour by", [{ value: "gpu", label: "GPU" }, { value: "model", label: "model" }, { value: "source", label: "source" }], "gpu", draw),
      table(rows, [
        { title: "model", text: (r) => r.model },
        { title: "GPU", text: (r) => short(r.gpu) },
        { title: "GPUs", numeric: true, text: (r) => `${r.gpus}`, value: (r) => r.gpus },
        { title: "plan", text: (r) => r.plan },
        ...timeColumns(rows, [["forecast", (r) => r.forecast_us], ["low", (r) => r.low_us], ["high", (r) => r.high_us], ["measured", (r) => r.measured_us]]),
        { title: "error", numeric: true, text: (r) => signedPercent(r.error), value: (r) => r.error },
        { title: "source", text: (r) => r.source },
      ], { caption: "Every step", filter: true, most: 400 })),
    section("Groups", "Where is the forecast good, where biased?",
      table(groups, [
        { title: "source", text: (g) => g.source }, { title: "GPU", text: (g) => g.gpu },
        { title: "steps", numeric: true, text: (g) => `${g.rows}`, value: (g) => g.rows },
        { title: "median absolute error", numeric: true, text: (g) => percent(g.median_abs_error), value: (g) => g.median_abs_error },
        { title: "bias", numeric: true, text: (g) => signedPercent(g.bias), value: (g) => g.bias },
        { title: "inside the interval", numeric: true, text: (g) => `${g.inside}`, value: (g) => g.inside / g.rows },
      ], { caption: "By source and GPU" })),
    skipped.length > 0 && section("Left out", "Which rows of the table were not forecast, and why?",
      h("details", {}, h("summary", {}, `${skipped.length} rows`),
        table(skipped, [
          { title: "line", numeric: true, text: (s) => `${s.line}`, value: (s) => s.line }, { title: "model", text: (s) => s.model },
          { title: "GPU", text: (s) => s.gpu }, { title: "reason", text: (s) => s.reason },
        ], { caption: "Rows left out", filter: true }))),
  );
}

// Published runs of one job under several dispatchers: what does following the recommendation lose?
function decisions(data: ReportData<ValidateDecisions>): HTMLElement[] {
  const result = data.result;
  const all = result.decisions;
  const answered = all.filter((one) => one.verdict === "clear" || one.verdict === "safe").length;
  const share = (value: number | null) => (value === null ? "-" : percent(value, 0));
  const margin = (one: typeof all[number]) => (one.measured_margin === null ? "memory" : percent(one.measured_margin));
  const said = (one: typeof all[number]) => one.probability?.toFixed(2) ?? "-";
  const bins = result.probability_bins;
  const skipped = result.skipped;
  const say = (one: typeof all[number]) => `${one.id}\nmeasured ${one.measured_winner} by ${margin(one)}\n` +
    `recommended ${one.recommended}, probability ${said(one)}: ${one.verdict}\nloses ${percent(one.loss)}, said at most ${percent(one.said_loss_at_most)}`;
  return report(data, "Measured decisions", `${all.length} decisions between dispatchers, each forecast without a recording.`,
    [answer(`Following the recommendation loses ${percent(result.mean_loss)} in the mean; it is the fastest in ${share(result.fastest_share)} of ${all.length} decisions.`,
      `${answered} are answered, clear or safe: of these ${share(result.good_share)} lose no more than the tolerance. What was said to be lost at most holds in ${share(result.bound_held_share)} of all.`)],
    section("Margins", "How much slower is the second fastest, as measured and as forecast?",
      h("p", { class: "key" }, "Line: 90 % interval. Round: the measured ratio lies inside it; diamond: outside."),
      ratioDots("Forecast against measured ratio of the two fastest", all.filter((one) => one.measured_ratio !== null).map((one) => ({
        label: one.id, forecast: one.forecast_ratio.value, low: one.forecast_ratio.low, high: one.forecast_ratio.high,
        measured: one.measured_ratio!, note: say(one) }))),
      table(all, [
        { title: "decision", text: (d) => d.id },
        { title: "GPU", text: (d) => d.gpu },
        { title: "model", text: (d) => d.model },
        { title: "measured winner", text: (d) => d.measured_winner },
        { title: "by", numeric: true, text: margin, value: (d) => d.measured_margin ?? Infinity },
        { title: "recommended", text: (d) => d.recommended },
        { title: "P(fastest)", numeric: true, text: said, value: (d) => d.probability ?? -1 },
        { title: "verdict", text: (d) => d.verdict },
        { title: "loss", numeric: true, text: (d) => percent(d.loss), value: (d) => d.loss },
        { title: "said at most", numeric: true, text: (d) => percent(d.said_loss_at_most), value: (d) => d.said_loss_at_most },
        { title: "because", text: (d) => d.because },
      ], { caption: "Every decision", filter: true })),
    section("Probabilities", "Is the recommended one as often the fastest as its probability says?",
      table(bins, [
        { title: "said", numeric: true, text: (b) => b.said.toFixed(2), value: (b) => b.said },
        { title: "right", numeric: true, text: (b) => b.right?.toFixed(2) ?? "-", value: (b) => b.right ?? -1 },
        { title: "decisions", numeric: true, text: (b) => `${b.count}`, value: (b) => b.count },
      ], { caption: "By the probability of the recommended one" })),
    skipped.length > 0 && section("Left out", "Which rows of the table were not forecast, and why?",
      table(skipped, [
        { title: "line", numeric: true, text: (s) => `${s.line}`, value: (s) => s.line }, { title: "decision", text: (s) => s.id },
        { title: "backend", text: (s) => s.backend }, { title: "reason", text: (s) => s.reason },
      ], { caption: "Rows left out" })),
  );
}

export function validatePage(data: ReportData<any>): HTMLElement[] {
  if (data.result.decisions) return decisions(data);
  if (data.result.rows) return training(data);
  return data.result.recordings ? many(data) : single(data);
}
