// The pipeline of a step: a row per stage, a box per pass, as the forecast timed them. Of long steps the first, a middle
// and the last stretch are shown, on one scale.
import * as Plot from "@observablehq/plot";
import { figure, legend } from "./charts";
import type { PipelineData } from "./data";
import { chosen, h, named } from "./dom";
import { number, percent, time, timeUnit } from "./format";

const kAfter = "gradients and optimizer";
const kBubble = "bubble: the stage has nothing to do";
const kColors: Record<string, string> = {
  forward: "--p-forward", backward: "--p-backward", "input gradient": "--p-input", "weight gradient": "--p-weight",
  "forward and backward": "--p-both", [kAfter]: "--c-grad_sync", [kBubble]: "--c-bubble",
};
const kKinds = Object.keys(kColors).slice(0, 5);
const color = (part: string) => `var(${kColors[part] ?? "--c-other"})`;
const kWhat: Record<string, string> = { all: "The whole step", first: "First", middle: "In the middle", last: "Last" };

// The colour of a pass by its name, which begins with its kind; of anything else none.
export function passVariable(name: string): string | undefined {
  return kColors[[...kKinds].reverse().find((one) => name.startsWith(`${one} `)) ?? ""];
}

export const passLegend = (most?: number): HTMLElement => legend(kKinds.slice(0, most), color);

interface Box {
  stage: string;
  kind: string;
  from: number;
  to: number;
  text: string;
  depth: number; // of the virtual stage
  note: string;
}

function windowChart(data: PipelineData, index: number): HTMLElement {
  const window_ = data.windows[index]!;
  const unit = timeUnit(data.end_us);
  const scaled = (us: number) => us * unit.factor;
  const clip = (us: number) => scaled(Math.max(window_.from_us, Math.min(window_.to_us, us)));
  const name = (stage: number) => `stage ${stage}`;
  const inside = (from: number, to: number) => to > window_.from_us && from < window_.to_us;
  const boxes: Box[] = data.boxes.filter((box) => inside(box[4], box[5])).map(([stage, kind, microbatch, chunk, from, to, back, backChunk]) => {
    const virtual = (one: number) => (data.chunks > data.stages ? `, chunk ${one}` : "");
    const what = back === undefined ? `${kind} of microbatch ${microbatch}${virtual(chunk)}`
      : `forward of microbatch ${microbatch}${virtual(chunk)} with backward of ${back}${virtual(backChunk!)}`;
    return {
      stage: name(stage), kind, from: clip(from), to: clip(to), depth: Math.floor(chunk / Math.max(1, data.stages)),
      text: back === undefined ? `${microbatch}` : `${microbatch}+${back}`,
      note: `${name(stage)}\n${what}\n${time(to - from)}, from ${time(from, unit)} to ${time(to, unit)}`,
    };
  });
  const after = data.rows.filter((row) => inside(row.after_from_us, row.after_to_us) && row.after_to_us > row.after_from_us).map((row) => ({
    stage: name(row.stage), from: clip(row.after_from_us), to: clip(row.after_to_us),
    note: `${name(row.stage)}\n${kAfter}\n${time(row.after_to_us - row.after_from_us)}`,
  }));
  const rows = data.rows.map((row) => name(row.stage));
  const span = scaled(window_.to_us) - scaled(window_.from_us);
  return figure(`${kWhat[window_.what]}: passes of every stage from ${time(window_.from_us, unit)} to ${time(window_.to_us, unit)}; empty stretches are the bubble`, (width) => {
    const left = width < 520 ? 30 : 64;
    const right = width < 520 ? 8 : 20;
    const perUnit = (width - left - right) / (span || 1);
    const high = rows.length > 16 ? 16 : 22;
    const tip = { fill: "var(--card)" };
    return Plot.plot({
      width,
      height: 40 + high * rows.length,
      marginLeft: left, marginRight: right, marginTop: 6, marginBottom: 34,
      x: { label: `time [${unit.name}]`, domain: [scaled(window_.from_us), scaled(window_.to_us)], ticks: Math.max(3, Math.floor(width / 120)) },
      y: { domain: rows, label: null, padding: 0.12, tickSize: 0, tickFormat: (label: string) => (width < 520 ? label.replace("stage ", "") : label) },
      marks: [
        Plot.barX(rows, { x1: scaled(window_.from_us), x2: scaled(window_.to_us), y: (row: string) => row, fill: "var(--c-bubble)" } as Plot.BarXOptions),
        // Areas under another chunk's colour do not belong to the bubble.
        Plot.barX(boxes, { x1: "from", x2: "to", y: "stage", fill: "var(--card)" } as Plot.BarXOptions),
        Plot.barX(boxes, {
          x1: "from", x2: "to", y: "stage", fill: (box: Box) => color(box.kind),
          fillOpacity: (box: Box) => [1, 0.74, 0.54, 0.4][Math.min(3, box.depth)]!, stroke: "var(--p-edge)", strokeWidth: 0.6, title: "note", tip,
        } as Plot.BarXOptions),
        Plot.barX(after, { x1: "from", x2: "to", y: "stage", fill: "var(--c-grad_sync)", stroke: "var(--p-edge)", strokeWidth: 0.6, title: "note", tip } as Plot.BarXOptions),
        Plot.text(boxes.filter((box) => (box.to - box.from) * perUnit > 4 + 6.4 * box.text.length), {
          x: (box: Box) => (box.from + box.to) / 2, y: "stage", text: "text", fontSize: 10, fill: (box: Box) => (box.depth > 1 ? "var(--text)" : "var(--on-bar)"), pointerEvents: "none",
        } as Plot.TextOptions),
      ],
    } as Plot.PlotOptions);
  });
}

// `bubble`: by dispatcher, the share of the step in which the stage that ends last waits for another stage.
export function pipelinePictures(all: PipelineData[], bubble: Map<string, number>, without: number): HTMLElement {
  const draw = (title: string) => {
    const data = all.find((one) => one.title === title)!;
    const kinds = kKinds.filter((kind) => data.boxes.some((box) => box[1] === kind));
    const virtual = data.chunks > data.stages ? ` in ${data.chunks} chunks` : "";
    const share = bubble.get(title);
    const idle = data.rows.map((row) => row.idle);
    const cut = data.windows.length > 1
      ? ` ${number(data.passes)} passes are too many to read: the first, the middle and the last ${time(data.windows[0]!.to_us, timeUnit(data.end_us))} are shown${3 * data.windows[0]!.to_us >= data.end_us * 0.999 ? ", which is all" : ""}.` : "";
    const rows = data.rows.length < data.stages ? ` ${data.rows.length} of ${data.stages} stages are shown.` : "";
    return [
      h("p", { class: "key", id: "bubble" },
        `${number(data.microbatches)} ${data.microbatches === 1 ? "microbatch goes" : "microbatches go"} through ${data.stages} ${data.stages === 1 ? "stage" : "stages"}${virtual}. ` +
        (share === undefined ? "" : `Bubble of stage ${data.critical_stage}, which ends last: ${percent(share)} of the step. `) +
        `A stage is without a pass for ${percent(Math.min(...idle))} to ${percent(Math.max(...idle))} of it: bubble, messages and what others still do.${cut}${rows}`),
      legend([...kinds, kAfter, kBubble], color),
      h("p", { class: "key" }, `The number is the microbatch${virtual ? "; paler boxes are later chunks of the stage" : ""}.`),
      ...data.windows.flatMap((one, index) => [
        data.windows.length > 1 ? h("h3", {}, `${kWhat[one.what]}`) : null,
        windowChart(data, index),
      ])];
  };
  const [controls, picture] = chosen("Dispatcher", named(all.map((one) => one.title)), all[0]!.title, draw);
  return h("div", { class: "pipeline" }, all.length > 1 && controls, picture,
    without > 0 ? h("p", { class: "left-out" }, `Without a picture, to keep the page small: ${without} more dispatchers.`) : null);
}
