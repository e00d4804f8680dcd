// Bars with intervals, stacked bars, points: drawn by Observable Plot, coloured by the style sheet.
import * as Plot from "@observablehq/plot";
import { h, whenSized } from "./dom";
import { words, type Unit } from "./format";

export interface IntervalBar {
  label: string;
  value: number;
  low: number;
  high: number;
  note: string; // shown when pointed at
  faded?: boolean; // cannot win
  best?: boolean;
  color?: string; // of what the row is of; without, the best stands out in green
}

export interface StackPiece {
  label: string; // of the bar
  part: string;
  value: number;
  note: string;
}

export function figure(description: string, draw: (width: number) => Element | Element[]): HTMLElement {
  const holder = h("div", { class: "chart", role: "img", "aria-label": description });
  whenSized(holder, (width) => {
    const drawn = draw(width);
    holder.replaceChildren(...(Array.isArray(drawn) ? drawn : [drawn]));
    // The picture has one name; its texts are not read one by one.
    holder.querySelectorAll("svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
  });
  return holder;
}

function leftMargin(labels: string[], width: number): number {
  const longest = Math.max(0, ...labels.map((label) => label.length));
  return Math.min(Math.max(60, 7.2 * longest + 16), Math.round(width * 0.42));
}

function shortened(label: string, margin: number): string {
  const room = Math.max(6, Math.floor((margin - 14) / 7.2));
  return label.length <= room ? label : label.slice(0, room - 1) + "…";
}

// A bar per row with its 90 % interval as a whisker, from zero.
export function intervalBars(description: string, rows: IntervalBar[], unit: Unit, axis: string): HTMLElement {
  return figure(description, (width) => {
    const margin = leftMargin(rows.map((row) => row.label), width);
    const scaled = rows.map((row) => ({
      ...row,
      value: row.value * unit.factor,
      low: row.low * unit.factor,
      high: row.high * unit.factor,
    }));
    const values = scaled.map((row) => row.high);
    const decimals = Math.max(...values) >= 100 ? 1 : 2;
    return Plot.plot({
      width,
      height: 44 + 34 * rows.length,
      marginLeft: margin,
      marginRight: 78,
      marginBottom: 36,
      x: { label: `${axis} [${unit.name}]`, grid: true, zero: true, ticks: Math.max(3, Math.floor(width / 140)) },
      y: { domain: rows.map((row) => row.label), label: null, padding: 0.3,
           tickFormat: (label: string) => shortened(label, margin), tickSize: 0 },
      marks: [
        Plot.barX(scaled, {
          x: "value", y: "label",
          fill: (row: IntervalBar) => (row.faded ? "var(--faded)" : row.color ?? (row.best ? "var(--best)" : "var(--bar)")),
          stroke: (row: IntervalBar) => (row.best && row.color ? "var(--text)" : "none"), strokeWidth: 2,
          title: "note", tip: { fill: "var(--card)" },
        }),
        Plot.ruleY(scaled, { x1: "low", x2: "high", y: "label", stroke: "var(--text)", strokeWidth: 1.6 }),
        Plot.tickX(scaled, { x: "low", y: "label", stroke: "var(--text)", strokeWidth: 1.6, insetTop: 6, insetBottom: 6 }),
        Plot.tickX(scaled, { x: "high", y: "label", stroke: "var(--text)", strokeWidth: 1.6, insetTop: 6, insetBottom: 6 }),
        ...[true, false].map((best) =>
          Plot.text(scaled.filter((row) => Boolean(row.best) === best), {
            x: "high", y: "label", text: (row: IntervalBar) => row.value.toFixed(decimals), textAnchor: "start", dx: 7,
            fill: "var(--text)", fontWeight: best ? "bold" : "normal",
          })),
      ],
    } as Plot.PlotOptions);
  });
}

export interface StackOptions {
  unit: Unit;
  axis: string;
  share?: boolean; // each bar is 100 %
  limit?: { value: number; label: string };
  totals?: boolean;
}

// Pieces end to end, in the order given; they add up to the bar. `order` is that of the legend.
export function stackedBars(
  description: string,
  pieces: StackPiece[],
  bars: string[],
  order: string[],
  color: (part: string) => string,
  options: StackOptions,
): HTMLElement {
  return figure(description, (width) => {
    const margin = leftMargin(bars, width);
    const totals = new Map<string, number>();
    for (const piece of pieces) totals.set(piece.label, (totals.get(piece.label) ?? 0) + piece.value);
    const placed: { label: string; part: string; x1: number; x2: number; note: string }[] = [];
    for (const bar of bars) {
      let at = 0;
      for (const part of order)
        for (const piece of pieces) {
          if (piece.label !== bar || piece.part !== part) continue;
          const scale = options.share ? 100 / (totals.get(bar) || 1) : options.unit.factor;
          placed.push({ label: bar, part, x1: at, x2: at + piece.value * scale, note: piece.note });
          at += piece.value * scale;
        }
    }
    const most = Math.max(...bars.map((bar) => (options.share ? 100 : (totals.get(bar) ?? 0) * options.unit.factor)),
                          options.limit && !options.share ? options.limit.value * options.unit.factor : 0);
    const perUnit = (width - margin - 70) / (most || 1);
    const marks: Plot.Markish[] = [
      Plot.barX(placed, {
        x1: "x1", x2: "x2", y: "label", fill: (piece: StackPiece) => color(piece.part), insetLeft: 0.5, insetRight: 0.5,
        title: "note", tip: { fill: "var(--card)" },
      } as Plot.BarXOptions),
      // A name inside where there is room, so that colour is not the only sign.
      Plot.text(placed.filter((p) => (p.x2 - p.x1) * perUnit > 8 + 6.6 * p.part.length), {
        x: (p: { x1: number; x2: number }) => (p.x1 + p.x2) / 2, y: "label",
        text: (p: { part: string }) => words(p.part), fill: "var(--on-bar)", fontSize: 11, pointerEvents: "none",
      } as Plot.TextOptions),
    ];
    if (options.totals && !options.share) {
      const decimals = most >= 100 ? 1 : 2;
      marks.push(
        Plot.text(bars, {
          x: (bar: string) => (totals.get(bar) ?? 0) * options.unit.factor, y: (bar: string) => bar,
          text: (bar: string) => ((totals.get(bar) ?? 0) * options.unit.factor).toFixed(decimals),
          textAnchor: "start", dx: 6, fill: "var(--text)", stroke: "var(--card)", strokeWidth: 4,
        }),
      );
    }
    if (options.limit && !options.share)
      marks.push(
        Plot.ruleX([options.limit.value * options.unit.factor], { stroke: "var(--bad)", strokeWidth: 2, strokeDasharray: "5,3" }),
        Plot.text([options.limit.value * options.unit.factor], {
          x: (x: number) => x, frameAnchor: "top", text: () => options.limit!.label, dy: -12, fill: "var(--bad-text)", fontWeight: "bold",
        } as Plot.TextOptions),
      );
    const svg = Plot.plot({
      width,
      height: 54 + 34 * bars.length,
      marginLeft: margin,
      marginRight: 66,
      marginTop: options.limit ? 24 : 10,
      marginBottom: 36,
      x: { label: options.share ? "share [%]" : `${options.axis} [${options.unit.name}]`, grid: true,
           domain: [0, most * (options.limit ? 1.04 : 1)], ticks: Math.max(3, Math.floor(width / 140)) },
      y: { domain: bars, label: null, padding: 0.28, tickFormat: (label: string) => shortened(label, margin), tickSize: 0 },
      marks,
    } as Plot.PlotOptions);
    const used = order.filter((part) => placed.some((piece) => piece.part === part && piece.x2 > piece.x1));
    return [legend(used, color), svg];
  });
}

export function legend(parts: string[], color: (part: string) => string): HTMLElement {
  return h("div", { class: "legend" }, ...parts.map((part) =>
    h("span", {}, h("span", { class: "swatch", style: `background:${color(part)}` }), words(part))));
}

export interface Dot {
  label: string;
  at: number;
  low: number;
  high: number;
  note: string;
  good: boolean; // round; else a diamond in another colour
}

// Signed values with their intervals, a row each, beside a line at zero.
export function intervalDots(description: string, dots: Dot[], axis: string, tick: (x: number) => string): HTMLElement {
  return figure(description, (width) => {
    const margin = leftMargin(dots.map((dot) => dot.label), width);
    return Plot.plot({
      width,
      height: 48 + 26 * dots.length,
      marginLeft: margin,
      marginRight: 24,
      marginBottom: 38,
      x: { label: axis, grid: true, nice: true, ticks: Math.max(3, Math.floor(width / 120)), tickFormat: tick },
      y: { domain: dots.map((dot) => dot.label), label: null, tickFormat: (label: string) => shortened(label, margin), tickSize: 0 },
      marks: [
        Plot.ruleX([0], { stroke: "var(--text)", strokeWidth: 1.5 }),
        Plot.ruleY(dots, { x1: "low", x2: "high", y: "label", stroke: "var(--bar)", strokeWidth: 3, strokeOpacity: 0.55 }),
        Plot.dot(dots, {
          x: "at", y: "label", r: 5, symbol: (dot: Dot) => (dot.good ? "circle" : "diamond"),
          fill: (dot: Dot) => (dot.good ? "var(--bar)" : "var(--bad)"), title: "note", tip: { fill: "var(--card)" },
        } as Plot.DotOptions),
      ],
    } as Plot.PlotOptions);
  });
}

export const signedTick = (x: number): string => (x > 0 ? `+${x}` : `${x}`.replace("-", "−"));

export interface Pair {
  label: string;
  forecast: number;
  low: number;
  high: number;
  measured: number;
  note: string;
}

// Forecast with interval beside what was measured, a row each, as a ratio to the measurement: the line at zero is right.
export function ratioDots(description: string, rows: Pair[]): HTMLElement {
  const off = (value: number, measured: number) => 100 * (value / measured - 1);
  return intervalDots(
    description,
    rows.map((row) => ({
      label: row.label, note: row.note, at: off(row.forecast, row.measured), low: off(row.low, row.measured),
      high: off(row.high, row.measured), good: row.low <= row.measured && row.measured <= row.high,
    })),
    "forecast against measured [%]", signedTick);
}

export interface Series {
  name: string;
  color: string;
  points: { x: number; y: number; low: number; high: number; note: string }[];
}

export interface LinesOptions {
  x: string; // axis, with its unit
  y: string;
  logarithmic?: boolean;
  whole?: boolean; // x counts: ticks are whole numbers
  // Where one line takes over from another, with the range in which that place lies.
  changes?: { at: number; low: number; high: number; label: string }[];
  signed?: boolean;
  steps?: boolean; // a value holds until the next point
}

const kDashes = ["", "7,4", "2,3", "9,3,2,3", "12,5", "4,2", "1,4", "6,2,1,2"];

// Lines with their intervals as bands. Dashes and symbols tell them apart without colour.
export function lines(description: string, series: Series[], options: LinesOptions): HTMLElement {
  const rows = series.flatMap((one, index) => one.points.map((point) => ({ ...point, name: one.name, color: one.color, index })));
  return figure(description, (width) => {
    const marks: Plot.Markish[] = [];
    for (const change of options.changes ?? []) {
      if (change.high > change.low)
        marks.push(Plot.rectX([change], { x1: "low", x2: "high", fill: "var(--faded)", fillOpacity: 0.28 } as Plot.RectXOptions));
      marks.push(Plot.ruleX([change.at], { stroke: "var(--text)", strokeWidth: 1.5, strokeDasharray: "4,3" }));
    }
    if (options.signed) marks.push(Plot.ruleY([0], { stroke: "var(--text)" }));
    marks.push(
      Plot.areaY(rows, { x: "x", y1: "low", y2: "high", z: "name", fill: "color", fillOpacity: 0.16 }),
      ...series.map((one, index) =>
        Plot.lineY(one.points, { x: "x", y: "y", stroke: one.color, strokeWidth: 2.4, strokeDasharray: kDashes[index % 8]!, curve: options.steps ? "step-after" : "linear" })),
      Plot.dot(rows, {
        x: "x", y: "y", symbol: "name", fill: "color", stroke: "var(--card)", strokeWidth: 0.8, r: options.steps ? 2.6 : 4.2, title: "note", tip: { fill: "var(--card)" },
      } as Plot.DotOptions),
    );
    const svg = Plot.plot({
      width,
      height: Math.min(380, Math.max(260, width * 0.42)),
      marginLeft: 64,
      marginRight: 24,
      marginBottom: 40,
      x: {
        label: options.x, grid: true, type: options.logarithmic ? "log" : "linear", nice: !options.whole,
        ticks: Math.max(3, Math.floor(width / 110)),
        ...(options.whole ? { tickFormat: (x: number) => (Number.isInteger(x) ? `${x}` : "") } : options.logarithmic ? { tickFormat: "~s" } : {}),
      },
      y: { label: options.y, grid: true, nice: true, ...(options.signed ? { tickFormat: signedTick } : {}) },
      symbol: { domain: series.map((one) => one.name) },
      marks,
    } as Plot.PlotOptions);
    return [symbolLegend(series.map((one, index) => ({ ...one, dash: kDashes[index % 8]! })), true), svg];
  });
}

// The symbol of each series as a chart draws it, on a piece of its line where it has one.
function symbolLegend(series: { name: string; color: string; dash?: string }[], filled: boolean): HTMLElement {
  const names = series.map((one) => one.name);
  const sample = (one: { name: string; color: string; dash?: string }) =>
    Plot.plot({
      width: one.dash === undefined ? 18 : 38, height: 16, margin: 0, className: "sample",
      x: { axis: null, domain: [0, 1] }, y: { axis: null, domain: [0, 1] }, symbol: { domain: names },
      marks: [
        one.dash === undefined
          ? null
          : Plot.link([0], { x1: 0.02, y1: 0.5, x2: 0.98, y2: 0.5, stroke: one.color, strokeWidth: 2.4, strokeDasharray: one.dash } as Plot.LinkOptions),
        Plot.dot([one.name], {
          x: () => 0.5, y: () => 0.5, symbol: (name: string) => name, r: 4.2,
          ...(filled ? { fill: one.color } : { stroke: one.color, strokeWidth: 1.7 }),
        } as Plot.DotOptions),
      ],
    } as Plot.PlotOptions);
  return h("div", { class: "legend" }, ...series.map((one) => h("span", {}, sample(one) as unknown as HTMLElement, one.name)));
}

export interface ScatterPoint {
  x: number;
  y: number;
  series: string;
  note: string;
  front: boolean; // no other point is better in both
  faded?: boolean; // cannot be chosen
}

// One symbol and colour per series; a step line joins the points that nothing beats.
export function scatter(
  description: string, points: ScatterPoint[], series: string[], color: (name: string) => string,
  options: { x: string; y: string; logX?: boolean; logY?: boolean; diagonal?: boolean },
): HTMLElement {
  return figure(description, (width) => {
    const front = points.filter((point) => point.front).sort((a, b) => a.x - b.x || b.y - a.y);
    const axis = (label: string, log: boolean | undefined) =>
      ({ label, grid: true, nice: true, type: log ? "log" : "linear", ...(log ? { tickFormat: "~s" } : {}) }) as Plot.ScaleOptions;
    const svg = Plot.plot({
      width,
      height: Math.min(440, Math.max(280, width * 0.5)),
      marginLeft: 68,
      marginRight: 24,
      marginBottom: 40,
      x: { ...axis(options.x, options.logX), ticks: Math.max(3, Math.floor(width / 110)) },
      y: axis(options.y, options.logY),
      symbol: { domain: series },
      marks: [
        options.diagonal
          ? Plot.line([Math.min(...points.map((p) => Math.min(p.x, p.y))), Math.max(...points.map((p) => Math.max(p.x, p.y)))],
              { x: (v: number) => v, y: (v: number) => v, stroke: "var(--text)", strokeWidth: 1.4 } as Plot.LineOptions)
          : null,
        Plot.dot(points, {
          x: "x", y: "y", symbol: "series", stroke: (p: ScatterPoint) => color(p.series), strokeOpacity: (p: ScatterPoint) => (p.faded ? 0.25 : 0.8), r: 3.4,
          title: "note", tip: { fill: "var(--card)" },
        } as Plot.DotOptions),
        front.length > 1 ? Plot.line(front, { x: "x", y: "y", curve: "step-after", stroke: "var(--text)", strokeWidth: 1.4 }) : null,
        Plot.dot(front, { x: "x", y: "y", symbol: "series", fill: (p: ScatterPoint) => color(p.series), stroke: "var(--text)", r: 5 } as Plot.DotOptions),
      ],
    } as Plot.PlotOptions);
    return [symbolLegend(series.map((name) => ({ name, color: color(name) })), false), svg];
  });
}
