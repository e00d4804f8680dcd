// A grid of cells as a canvas: load per rank, bytes from rank to rank. The arrow keys move a cursor, whose cell is
// read out below; darker (in the dark: brighter) is more.
import { interpolateRgb } from "d3";
import { h, prepared, whenSized } from "./dom";
import { cssColor } from "./palette";

export interface GridOptions {
  description: string;
  rows: string[];
  columns: string[];
  value: (row: number, column: number) => number | null; // null: no cell
  text: (row: number, column: number) => string; // of the readout
  cellText?: (row: number, column: number) => string | string[]; // inside: the first that there is room for
  rowTitle: string;
  columnTitle: string;
  scaleText: (value: number) => string;
  from?: number; // value of the lightest colour; the smallest where absent
  square?: boolean;
  // Cells of kinds instead of amounts: a colour of the style sheet, and whether the kind is uncertain (hatched).
  paint?: (row: number, column: number) => { color: string; unsure: boolean } | null;
}

// Stripes over a cell, for what is not sure.
function hatch(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, color: string): void {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = color;
  context.globalAlpha = 0.55;
  context.lineWidth = 2;
  context.beginPath();
  for (let at = -h; at < w; at += 8) {
    context.moveTo(x + at, y + h);
    context.lineTo(x + at + h, y);
  }
  context.stroke();
  context.restore();
}

export function grid(options: GridOptions): HTMLElement {
  const R = options.rows.length;
  const C = options.columns.length;
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-roledescription": "grid of cells",
                               "aria-label": `${options.description}. Arrow keys move the cursor.` });
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  const holder = h("div", { class: "grid" }, canvas);
  const scale = h("div", { class: "scale" });
  let least = Infinity;
  let most = -Infinity;
  for (let r = 0; r < R; ++r)
    for (let c = 0; c < C; ++c) {
      const value = options.value(r, c);
      if (value === null) continue;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
  least = options.from ?? least;
  let cursor = { row: 0, column: 0 };
  let active = false;
  let geometry = { left: 0, top: 0, cw: 1, ch: 1 };

  const draw = (width: number) => {
    const small = width < 520;
    const context = canvas.getContext("2d")!;
    const font = "12px system-ui, sans-serif";
    context.font = font;
    const widest = Math.max(...options.rows.map((row) => context.measureText(row).width));
    const left = Math.min(Math.ceil(widest) + 10, Math.round(width * 0.4));
    const top = 20;
    let cw = Math.max(1, (width - left - 2) / C);
    if (options.square) cw = Math.min(cw, options.cellText ? 62 : 34);
    else cw = Math.min(cw, 120);
    const ch = options.square ? Math.max(1, options.cellText ? Math.min(cw, 40) : cw) : Math.max(small ? 18 : 22, Math.min(30, 400 / R));
    const heightCss = Math.ceil(top + ch * R + 4);
    const widthCss = Math.ceil(left + cw * C + 2);
    prepared(canvas, widthCss, heightCss);
    // Steps of one hue, equal in lightness: safe for every kind of colour vision, and in black and white.
    const heat = interpolateRgb(cssColor("--heat-low"), cssColor("--heat-high"));
    const text = cssColor("--text");
    const share = (value: number) => (most > least ? (value - least) / (most - least) : 0.5);
    for (let r = 0; r < R; ++r)
      for (let c = 0; c < C; ++c) {
        const value = options.value(r, c);
        if (value === null) continue;
        const x = left + c * cw;
        const y = top + r * ch;
        const gap = cw > 6 && ch > 6 ? 1 : 0;
        const kind = options.paint?.(r, c);
        context.fillStyle = kind ? cssColor(kind.color) : heat(Math.max(0, Math.min(1, share(value))));
        context.fillRect(x, y, cw - gap, ch - gap);
        if (kind?.unsure) hatch(context, x, y, cw - gap, ch - gap, cssColor("--card"));
        if (options.cellText) {
          context.font = "11px system-ui, sans-serif";
          const label = [options.cellText(r, c)].flat().find((one) => context.measureText(one).width < cw - 5);
          if (label && ch >= 14) {
            context.fillStyle = kind ? cssColor("--on-bar") : share(value) > 0.5 ? cssColor("--heat-on-high") : cssColor("--heat-on-low");
            context.textAlign = "center";
            context.textBaseline = "middle";
            context.fillText(label, x + cw / 2, y + ch / 2);
          }
        }
      }
    context.font = font;
    context.fillStyle = text;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const everyRow = Math.max(1, Math.ceil(14 / ch));
    for (let r = 0; r < R; r += everyRow) {
      let label = options.rows[r]!;
      while (label.length > 3 && context.measureText(label).width > left - 8) label = label.slice(0, -2) + "…";
      context.fillText(label, left - 6, top + r * ch + ch / 2);
    }
    context.textAlign = "center";
    const widestColumn = Math.max(...options.columns.map((column) => context.measureText(column).width));
    const everyColumn = Math.max(1, Math.ceil((widestColumn + 8) / cw));
    for (let c = 0; c < C; c += everyColumn) context.fillText(options.columns[c]!, left + c * cw + cw / 2, top / 2);
    if (active) {
      context.strokeStyle = cssColor("--focus");
      context.lineWidth = 2.5;
      context.strokeRect(left + cursor.column * cw, top + cursor.row * ch, Math.max(cw, 3), Math.max(ch, 3));
    }
    geometry = { left, top, cw, ch };
    scale.hidden = Boolean(options.paint);
    if (!options.paint) scale.replaceChildren(
      h("span", {}, options.scaleText(least)),
      h("span", { class: "ramp", style: `background:linear-gradient(to right, ${heat(0)}, ${heat(1)})` }),
      h("span", {}, options.scaleText(most)),
    );
  };
  const show = () => {
    readout.textContent = options.value(cursor.row, cursor.column) === null
      ? `${options.rows[cursor.row]}: nothing here`
      : options.text(cursor.row, cursor.column);
    draw(Math.floor(holder.clientWidth));
  };
  const hint = `${options.rowTitle} by ${options.columnTitle}; point at a cell, or use the arrow keys`;
  readout.textContent = hint;
  canvas.addEventListener("pointermove", (event) => {
    const column = Math.floor((event.offsetX - geometry.left) / geometry.cw);
    const row = Math.floor((event.offsetY - geometry.top) / geometry.ch);
    if (row < 0 || column < 0 || row >= R || column >= C) return;
    if (active && row === cursor.row && column === cursor.column) return;
    cursor = { row, column };
    active = true;
    show();
  });
  canvas.addEventListener("focus", () => { active = true; show(); });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move) return;
    event.preventDefault();
    cursor = {
      row: Math.max(0, Math.min(R - 1, cursor.row + move[0]!)),
      column: Math.max(0, Math.min(C - 1, cursor.column + move[1]!)),
    };
    show();
  });
  whenSized(holder, draw);
  return h("div", {}, holder, h("div", { class: "under" }, scale, readout));
}
