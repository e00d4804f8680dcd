// A table that sorts by any column and can be filtered by text; every chart has one with its numbers.
import { freshId, h, textInput } from "./dom";
import { byteUnit, significant, timeUnit, type Unit } from "./format";

export interface Column<Row> {
  title: string;
  text: (row: Row) => string;
  value?: (row: Row) => number | string; // to sort by; the text where absent
  numeric?: boolean;
}

export interface TableOptions<Row> {
  caption: string;
  best?: (row: Row) => boolean; // marked
  filter?: boolean;
  sortBy?: number; // column, ascending
  most?: number; // rows shown at a time
  groupBy?: (row: Row) => string; // a line parts groups while the rows are in their own order
  mark?: number; // the column that says "best"
}

// Columns of times (us) and of bytes, all in the unit of the largest, which the head names; "-" where there is none.
export function timeColumn<Row>(title: string, rows: Row[], of: (row: Row) => number | undefined): Column<Row> {
  return measured(title, rows, of, timeUnit, 4);
}
// Times that are compared with each other, in the unit of the first.
export function timeColumns<Row>(rows: Row[], columns: [string, (row: Row) => number][]): Column<Row>[] {
  const unit = timeUnit(Math.max(0, ...rows.map(columns[0]![1])));
  return columns.map(([title, of]) => measured(title, rows, of, () => unit, 4));
}
export function byteColumn<Row>(title: string, rows: Row[], of: (row: Row) => number | undefined): Column<Row> {
  return measured(title, rows, of, byteUnit, 3);
}
function measured<Row>(title: string, rows: Row[], of: (row: Row) => number | undefined, unitOf: (largest: number) => Unit, digits: number): Column<Row> {
  const unit = unitOf(Math.max(0, ...rows.map((row) => Math.abs(of(row) ?? 0))));
  return {
    title: `${title} [${unit.name}]`, numeric: true, value: (row) => of(row) ?? Infinity,
    text: (row) => { const value = of(row); return value === undefined ? "-" : significant(value * unit.factor, digits); },
  };
}

const kAcross = 28; // columns
const kWords = 18; // characters of a column of text at least, where it has as many
const kSentence = 60; // a column with longer texts is wide (.long), so that no row is high
const kPrinted = 60; // rows, as in style.css

// A text that may break behind what joins its parts, "expert-communication+gradients", and nowhere else in a word.
function breaking(text: string): (string | Node)[] {
  return text.split(/(?<=[+/,])(?=\S)/).flatMap((part, i) => (i === 0 ? [part] : [h("wbr"), part]));
}

export function table<Row>(rows: Row[], columns: Column<Row>[], options: TableOptions<Row>): HTMLElement {
  const body = h("tbody");
  // Columns of text are as wide as theirs, up to some words.
  const shapes = columns.map((column) => {
    const longest = rows.slice(0, 200).reduce((most, row) => Math.max(most, column.text(row).length), 0);
    return column.numeric ? { class: "number" } : longest > kSentence ? { class: "long" } : { style: `min-width: ${Math.min(kWords, longest)}ch` };
  });
  const heads: HTMLElement[] = [];
  let sorted = options.sortBy ?? -1;
  let down = false;
  let wanted = "";

  const draw = () => {
    let shown = rows.filter(
      (row) => !wanted || columns.some((column) => column.text(row).toLowerCase().includes(wanted)),
    );
    const column = columns[sorted];
    if (column) {
      const value = column.value ?? column.text;
      shown = [...shown].sort((a, b) => {
        const x = value(a);
        const y = value(b);
        const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
        return down ? -order : order;
      });
    }
    const count = shown.length;
    if (options.most !== undefined) shown = shown.slice(0, options.most);
    body.replaceChildren(
      ...shown.map((row, r) => {
        const best = options.best?.(row) ?? false;
        const parts = options.groupBy && sorted < 0 && r > 0 && options.groupBy(row) !== options.groupBy(shown[r - 1]!);
        const mark = (i: number) => (best && i === (options.mark ?? 0) ? h("span", { class: "mark" }, " best") : null);
        return h(
          "tr",
          { class: [best ? "best" : "", parts ? "parted" : ""].filter((one) => one).join(" ") || undefined },
          ...columns.map((c, i) =>
            i === 0
              ? h("th", { scope: "row" }, c.text(row), mark(i))
              : h("td", shapes[i]!, ...(c.numeric ? [c.text(row)] : breaking(c.text(row))), mark(i)),
          ),
        );
      }),
    );
    if (shown.length === 0)
      body.append(h("tr", {}, h("td", { colspan: columns.length }, `no row holds “${wanted}”`)));
    if (shown.length < count)
      body.append(h("tr", {}, h("td", { colspan: columns.length }, `and ${count - shown.length} more: sort or filter to see them`)));
    heads.forEach((head, i) =>
      head.setAttribute("aria-sort", i !== sorted ? "none" : down ? "descending" : "ascending"),
    );
  };

  const head = h("tr");
  columns.forEach((column, i) => {
    const control = h("button", { type: "button", title: `sort by ${column.title}` }, column.title);
    control.addEventListener("click", () => {
      down = sorted === i ? !down : false;
      sorted = i;
      draw();
    });
    const cell = h("th", { scope: "col", class: column.numeric ? "number" : undefined }, control);
    heads.push(cell);
    head.append(cell);
  });
  draw();
  // Outside of what scrolls: a caption of a wide table would be cut off.
  const id = freshId("caption");
  const caption = h("p", { class: "caption", id }, options.caption);
  const element = h("table", { "aria-labelledby": id }, h("thead", {}, head), body);
  // Paper has no bar to scroll: wide tables lie across, and of long ones the first rows are printed.
  const scroller = h("div", { class: columns.length > kAcross ? "scroll across" : "scroll", tabindex: 0, role: "region", "aria-labelledby": id }, element,
    rows.length > kPrinted ? h("p", { class: "on-paper" }, `On paper: the first ${kPrinted} of ${rows.length} rows; all are in the JSON result.`) : null);
  const filter = options.filter && h("div", { class: "controls" }, textInput("Filter", "text in any column", (text) => {
    wanted = text.trim().toLowerCase();
    draw();
  }));
  return h("div", {}, filter, caption, scroller);
}
