// Bars with intervals, stacked bars, points: drawn by Observable Plot, coloured by the style sheet.
import * as Plot from "@observablehq/plot";
import { h, whenSized } from "./dom";
import type { Unit } from "./format";

export interface IntervalBar {
  label: string;
  value: number;
  low: number;
  high: number;
  note: string; // shown when pointed at
  faded?: boolean; // cannot win
  best?: boolean;
}

export interface StackPiece {
  label: string; // of the bar
  part: string;
  value: number;
  note: string;
}

function figure(description: string, draw: (width: number) => Element | Element[]): HTMLElement {
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
          fill: (row: IntervalBar) => (row.best ? "var(--best)" : row.faded ? "var(--faded)" : "var(--bar)"),
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
        text: (p: { part: string }) => p.part.replace(/_/g, " "), fill: "var(--on-bar)", fontSize: 11, pointerEvents: "none",
      } as Plot.TextOptions),
    ];
    if (options.totals && !options.share) {
      const decimals = most >= 100 ? 1 : 2;
      marks.push(
        Plot.text(bars, {
          x: (bar: string) => (totals.get(bar) ?? 0) * options.unit.factor, y: (bar: string) => bar,
          text: (bar: string) => ((totals.get(bar) ?? 0) * options.unit.factor).toFixed(decimals),
          textAnchor: "start", dx: 6, fill: "var(--text)",
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
  return h(
    "div",
    { class: "legend" },
    ...parts.map((part) =>
      h("span", {}, h("span", { class: "swatch", style: `background:${color(part)}` }), part.replace(/_/g, " ")),
    ),
  );
}

export interface Pair {
  label: string;
  forecast: number;
  low: number;
  high: number;
  measured: number;
  note: string;
}

// Forecast with interval beside what was measured, a row each, as a ratio to the measurement: the line at 1 is right.
export function ratioDots(description: string, rows: Pair[]): HTMLElement {
  return figure(description, (width) => {
    const margin = leftMargin(rows.map((row) => row.label), width);
    const scaled = rows.map((row) => ({
      label: row.label, note: row.note,
      at: 100 * (row.forecast / row.measured - 1), low: 100 * (row.low / row.measured - 1), high: 100 * (row.high / row.measured - 1),
      inside: row.low <= row.measured && row.measured <= row.high,
    }));
    return Plot.plot({
      width,
      height: 48 + 26 * rows.length,
      marginLeft: margin,
      marginRight: 24,
      marginBottom: 38,
      x: { label: "forecast against measured [%]", grid: true, nice: true, ticks: Math.max(3, Math.floor(width / 120)),
           tickFormat: (x: number) => (x > 0 ? `+${x}` : `${x}`.replace("-", "−")) },
      y: { domain: rows.map((row) => row.label), label: null, tickFormat: (label: string) => shortened(label, margin), tickSize: 0 },
      marks: [
        Plot.ruleX([0], { stroke: "var(--text)", strokeWidth: 1.5 }),
        Plot.ruleY(scaled, { x1: "low", x2: "high", y: "label", stroke: "var(--bar)", strokeWidth: 3, strokeOpacity: 0.55 }),
        Plot.dot(scaled, {
          x: "at", y: "label", r: 5, symbol: (row: { inside: boolean }) => (row.inside ? "circle" : "diamond"),
          fill: (row: { inside: boolean }) => (row.inside ? "var(--bar)" : "var(--bad)"), title: "note", tip: { fill: "var(--card)" },
        } as Plot.DotOptions),
      ],
    } as Plot.PlotOptions);
  });
}
