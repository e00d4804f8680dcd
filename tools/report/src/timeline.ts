// The timeline of chosen ranks on a canvas: drag to move, Ctrl and wheel, pinch or keys to zoom, click or keys to read a
// slice. Draws what is visible only, one rectangle per pixel at most.
import type { TimelineData } from "./data";
import { button, checkbox, h, named, prepared, select, textInput, whenSized } from "./dom";
import { legend } from "./charts";
import { number, time, timeUnit } from "./format";
import { categoryColor, categoryVariable, cssColor } from "./palette";
import { passLegend, passVariable } from "./pipeline";
import { firstAfter, lastUntil, rankTest, tracksOf, type Track } from "./tracks";

const kRow = 20;
const kAxis = 26;
const kWaiting = new Set(["straggler_wait", "bubble", "host_sync"]);

export interface TimelineLook {
  id?: string;
  colorOf?: (name: string) => string | undefined; // of slices that are no operations: a variable of the style sheet
  legend?: HTMLElement; // with colorOf
}

export function timelineChart(timelines: TimelineData[], categories: string[], title: string, look: TimelineLook = {}): HTMLElement {
  const id = look.id ?? "timeline";
  const all = tracksOf(timelines, categories);
  const whole = Math.max(...timelines.map((timeline) => timeline.end_us), 1e-9);
  let titleWanted = "";
  let rankWanted = rankTest("")!;
  let wanted = "";
  let shown: Track[] = [];
  let from = 0;
  let to = whole;
  let selected: { track: Track; slice: number } | null = null;
  let row = 0;
  let counters = false;

  const canvas = h("canvas", {
    tabindex: 0, role: "application", "aria-roledescription": "timeline", "aria-label":
      `${title}. Plus and minus zoom, left and right move, up and down choose a track, comma and full stop choose a slice, Home shows everything.`,
  });
  const axis = h("canvas", { class: "axis", "aria-hidden": "true" });
  const holder = h("div", { class: "tracks" }, axis, canvas);
  const readout = h("p", { class: "readout", "aria-live": "polite" }, "Choose a slice to read what it is and what it waited for.");
  const window_ = h("span", { class: "window", id: `${id}-window` });
  const problem = h("span", { class: "problem", role: "status" });

  // Steps of the schedule look as on the picture of a pipeline.
  const colorOfStep = (track: Track, name: string) => look.colorOf?.(name) ?? (track.stream === "steps" ? passVariable(name) : undefined);
  const gutter = () => (holder.clientWidth < 560 ? 92 : 204);
  const x = (at: number, width: number) => gutter() + ((at - from) / (to - from)) * (width - gutter());

  const choose = () => {
    shown = all.filter((track) => rankWanted(track.rank) && (!titleWanted || track.title === titleWanted) && (counters || !track.counter));
    shown.sort((a, b) => a.rank - b.rank);
    if (titleWanted || timelines.length > 2) shown.sort((a, b) => (a.title === b.title ? 0 : a.title < b.title ? -1 : 1));
    row = Math.min(row, Math.max(0, shown.length - 1));
  };

  const drawAxis = (width: number) => {
    const context = prepared(axis, width, kAxis);
    context.fillStyle = cssColor("--card");
    context.fillRect(0, 0, width, kAxis);
    const unit = timeUnit(to);
    const count = Math.max(2, Math.floor((width - gutter()) / 110));
    const rough = (to - from) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? rough;
    context.fillStyle = cssColor("--text");
    context.strokeStyle = cssColor("--line");
    const places = Math.max(0, -Math.floor(Math.log10(step * unit.factor) + 1e-9));
    context.textAlign = "center";
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const px = x(at, width);
      const label = `${(at * unit.factor).toFixed(Math.min(6, places))}`;
      if (px > width - 22) continue;
      context.fillText(label, px, 11);
      context.fillRect(px, 20, 1, 6);
    }
    context.textAlign = "left";
    context.fillText(`time [${unit.name}]`, 4, 11);
  };

  const drawCounter = (context: CanvasRenderingContext2D, track: Track, y: number, width: number, color: string) => {
    const { at, value, most } = track.counter!;
    context.fillStyle = cssColor("--bar");
    let first = lastUntil(at, from);
    if (first < 0) first = 0;
    for (let i = first; i < at.length && at[i]! < to; ++i) {
      const x1 = Math.max(gutter(), x(at[i]!, width));
      const x2 = Math.min(width, x(at[i + 1] ?? whole, width));
      const high = most > 0 ? (value[i]! / most) * (kRow - 3) : 0;
      context.fillRect(x1, y + kRow - high, Math.max(0.5, x2 - x1), high);
    }
    context.fillStyle = color;
    context.textAlign = "right";
    context.fillText(`up to ${number(most, 3)}`, width - 4, y + kRow / 2);
    context.textAlign = "left";
  };

  const draw = (width: number) => {
    if (width < 50) return;
    choose();
    drawAxis(width);
    const height = Math.max(kRow, shown.length * kRow) + 2;
    const context = prepared(canvas, width, height);
    const left = gutter();
    const colors = new Map<string, string>();
    const colorOf = (category: string) => {
      let color = colors.get(category);
      if (color === undefined) colors.set(category, (color = cssColor(categoryVariable(category))));
      return color;
    };
    const text = cssColor("--text");
    const onBar = cssColor("--on-bar");
    const line = cssColor("--line");
    const card = cssColor("--card");
    shown.forEach((track, r) => {
      const y = r * kRow;
      if (r > 0 && (track.rank !== shown[r - 1]!.rank || track.title !== shown[r - 1]!.title)) {
        context.fillStyle = line;
        context.fillRect(0, y, width, 1);
      }
      let drawnTo = -1;
      context.textAlign = "left";
      if (track.counter) drawCounter(context, track, y, width, text);
      for (let i = firstAfter(track, from); i < track.start.length && track.start[i]! < to; ++i) {
        const x1 = Math.max(left, x(track.start[i]!, width));
        const x2 = Math.min(width, x(track.end[i]!, width));
        if (x2 <= drawnTo) continue;
        const w = Math.max(1, x2 - x1);
        drawnTo = Math.floor(x1 + w);
        const dim = wanted && !track.name[i]!.toLowerCase().includes(wanted);
        context.globalAlpha = dim ? 0.18 : 1;
        const own = colorOfStep(track, track.name[i]!);
        context.fillStyle = own ? cssColor(own) : colorOf(track.category[i]!);
        const waiting = kWaiting.has(track.category[i]!);
        const inset = waiting ? 6 : 2;  // thin: nothing is done
        context.fillRect(x1, y + inset, w > 3 ? w - 0.5 : w, kRow - 2 * inset);
        if (w > 26 && !waiting) {
          const name = track.name[i]!;
          const room = Math.floor((w - 6) / 6.2);
          context.fillStyle = onBar;
          if (room >= 3) context.fillText(name.length <= room ? name : name.slice(0, room - 1) + "…", x1 + 3, y + kRow / 2);
        }
        context.globalAlpha = 1;
        if (selected && selected.track === track && selected.slice === i) {
          context.strokeStyle = cssColor("--focus");
          context.lineWidth = 2.5;
          context.strokeRect(x1, y + 1.5, Math.max(w, 3), kRow - 3);
        }
      }
      context.fillStyle = card;
      context.fillRect(0, y + (r > 0 ? 1 : 0), left - 2, kRow - 1);
      context.fillStyle = r === row && document.activeElement === canvas ? cssColor("--focus") : text;
      const several = track.title && !titleWanted;
      const full = `${several ? track.title + " · " : ""}${track.of} ${track.rank} · ${track.stream}`;
      const narrow = `${track.rank} ${several ? track.title.slice(0, 4) + " " : ""}${track.stream}`;
      let label = holder.clientWidth < 560 ? narrow : full;
      while (label.length > 4 && context.measureText(label).width > left - 8) label = label.slice(0, -2) + "…";
      context.fillText(label, 4, y + kRow / 2);
    });
    if (shown.length === 0) {
      context.fillStyle = text;
      context.fillText("no track is chosen", 4, kRow / 2);
    }
    window_.textContent = `${time(from, timeUnit(to))} to ${time(to)}`;
  };
  const redraw = () => draw(Math.floor(holder.clientWidth));

  const showing = (start: number, span: number) => {
    from = Math.max(0, Math.min(whole - span, start));
    to = from + span;
    redraw();
  };
  const zoom = (factor: number, about = (from + to) / 2) => {
    const least = Math.max(whole * 1e-7, 1e-3);
    const span = Math.min(whole, Math.max(least, (to - from) * factor));
    showing(about - ((about - from) / (to - from)) * span, span);
  };
  const move = (by: number) => showing(from + by, to - from);
  const everything = () => showing(0, whole);

  const show = (track: Track, slice: number) => {
    selected = { track, slice };
    const length = track.end[slice]! - track.start[slice]!;
    readout.textContent =
      `${track.title ? track.title + ", " : ""}${track.of} ${track.rank}, ${track.stream}: ${track.name[slice]} ` +
      `${look.colorOf ? "" : `(${track.category[slice]!.replace(/_/g, " ")}) `}takes ${time(length)}, from ${time(track.start[slice]!)} to ${time(track.end[slice]!)}` +
      (track.note[slice] ? `; ${track.note[slice]}` : "") + ".";
    redraw();
  };
  const timeAt = (px: number) => from + ((px - gutter()) / (holder.clientWidth - gutter())) * (to - from);
  const sliceAt = (track: Track, at: number) => {
    const i = firstAfter(track, at);
    const slack = ((to - from) / holder.clientWidth) * 2;
    return i < track.start.length && track.start[i]! <= at + slack ? i : -1;
  };

  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.004), timeAt(event.offsetX));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move((event.deltaX / holder.clientWidth) * (to - from));
    }
  }, { passive: false });

  const pointers = new Map<number, number>();
  let pressed = { x: 0, y: 0, moved: false };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event.offsetX);
    pressed = { x: event.offsetX, y: event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (before === undefined) return;
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)![1];
      const factor = Math.abs(before - other) / Math.max(8, Math.abs(event.offsetX - other));
      pressed.moved = true;
      zoom(factor, timeAt(other));
    } else if (Math.abs(event.offsetX - pressed.x) > 3 || pressed.moved) {
      pressed.moved = true;
      move(((before - event.offsetX) / (holder.clientWidth - gutter())) * (to - from));
    }
    pointers.set(event.pointerId, event.offsetX);
  });
  const release = (event: PointerEvent) => {
    pointers.delete(event.pointerId);
    if (pressed.moved || event.type !== "pointerup") return;
    const track = shown[Math.floor(event.offsetY / kRow)];
    if (!track) return;
    row = shown.indexOf(track);
    if (track.counter) {
      const at = timeAt(event.offsetX);
      const point = lastUntil(track.counter.at, at);
      readout.textContent = `${track.title ? track.title + ", " : ""}${track.of} ${track.rank}, ${track.stream}: ${number(point < 0 ? 0 : track.counter.value[point]!)} at ${time(at)}.`;
      redraw();
      return;
    }
    const i = sliceAt(track, timeAt(event.offsetX));
    if (i >= 0) show(track, i);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event.offsetX)));
  canvas.addEventListener("focus", redraw);
  canvas.addEventListener("blur", redraw);
  canvas.addEventListener("keydown", (event) => {
    const track = shown[row];
    const next = (by: number) => {
      if (!track || track.start.length === 0) return;
      const now = selected?.track === track ? selected.slice + by : sliceAt(track, (from + to) / 2);
      const slice = Math.max(0, Math.min(track.start.length - 1, now < 0 ? firstAfter(track, from) : now));
      if (track.start[slice]! < from || track.end[slice]! > to) {
        const span = Math.max(to - from, track.end[slice]! - track.start[slice]!);
        showing((track.start[slice]! + track.end[slice]! - span) / 2, span);
      }
      show(track, slice);
    };
    const keys: Record<string, () => void> = {
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6),
      ArrowLeft: () => move(-(to - from) * 0.15), ArrowRight: () => move((to - from) * 0.15),
      ArrowUp: () => { row = Math.max(0, row - 1); redraw(); },
      ArrowDown: () => { row = Math.min(shown.length - 1, row + 1); redraw(); },
      ",": () => next(-1), ".": () => next(1), Home: everything,
    };
    const action = keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });

  const titles = [...new Set(all.map((track) => track.title))].filter((one) => one);
  const used = categories.filter((category) => all.some((track) => track.category.includes(category)));
  // Many dispatchers below each other are a wall; the first is the one that was found best.
  if (titles.length > 2) titleWanted = titles[0]!;
  whenSized(holder, draw);
  const notes = timelines.flatMap((timeline) =>
    timeline.left_out.map((one) => (timelines.length > 1 ? `${timeline.title}: ${one}` : one)));
  return h(
    "div",
    { class: "timeline" },
    h(
      "div",
      { class: "controls" },
      titles.length > 1
        ? select("Show", [{ value: "", label: "all" }, ...named(titles)], titleWanted,
                 (value) => { titleWanted = value; redraw(); })
        : null,
      textInput("Ranks", "all, or 0-3, 8", (value) => {
        const test = rankTest(value);
        problem.textContent = test ? "" : "ranks are numbers and ranges: 0-3, 8";
        if (test) { rankWanted = test; redraw(); }
      }),
      all.some((track) => track.counter)
        ? checkbox("load and memory", counters, (on) => { counters = on; redraw(); })
        : null,
      textInput("Highlight", "part of a name", (value) => { wanted = value.trim().toLowerCase(); redraw(); }),
      h("span", { class: "buttons" },
        button("−", "zoom out", () => zoom(1 / 0.5)), button("+", "zoom in", () => zoom(0.5)),
        button("←", "move left", () => move(-(to - from) * 0.3)), button("→", "move right", () => move((to - from) * 0.3)),
        button("all", "show everything", everything)),
      window_, problem,
    ),
    look.legend ?? legend(used, categoryColor),
    !look.legend && all.some((track) => track.stream === "steps") && passLegend(2),
    holder,
    readout,
    notes.length > 0 ? h("p", { class: "left-out" }, `Left out: ${notes.join("; ")}.`) : null,
  );
}
