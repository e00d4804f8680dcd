// A table that sorts by any column and can be filtered by text; every chart has one with its numbers.
import { freshId, h, textInput } from "./dom";

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

const kAcross = 28; // columns
const kPrinted = 60; // rows, as in style.css

export function table<Row>(rows: Row[], columns: Column<Row>[], options: TableOptions<Row>): HTMLElement {
  const body = h("tbody");
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
              : h("td", { class: c.numeric ? "number" : undefined }, c.text(row), mark(i)),
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
  if (!options.filter) return h("div", {}, caption, scroller);
  return h(
    "div",
    {},
    h(
      "div",
      { class: "controls" },
      textInput("Filter", "text in any column", (text) => {
        wanted = text.trim().toLowerCase();
        draw();
      }),
    ),
    caption,
    scroller,
  );
}
