// The report of `sweep`: every scenario at a glance. Rows are those of the CSV file, one per scenario and dispatcher.
import { rollup } from "d3";
import type { ReportData } from "./data";
import { checkbox, h, section, select } from "./dom";
import { scatter, type ScatterPoint } from "./charts";
import { bytes, byteUnit, nameOf, number, percent, probability, significant, time, timeUnit, words, type Unit } from "./format";
import { grid } from "./grid";
import { answer, report } from "./page";
import { dispatcherColor, dispatcherLine, dispatcherVariable } from "./palette";
import { table, type Column } from "./table";

type Value = string | number | boolean | null;

interface Row {
  scenario: number;
  dispatcher: string;
  values: Value[];
}

const kMostPoints = 4000;
const kLower = ["time_us.value", "peak_memory_bytes.max", "cost", "cost_per_million_tokens", "tx_bytes_per_rank.mean", "tx_bytes_per_rank.max", "overload.max"];

const kNames: Record<string, string> = {
  "time_us.value": "time", "time_us.low": "time, low", "time_us.high": "time, high", "winner.probability": "probability",
  fastest_probability: "P(fastest)", expected_loss: "loss expected", loss_at_most: "loss at most (90 %)",
  tokens_per_s_per_gpu: "tokens/s/GPU", mfu: "MFU", "tx_bytes_per_rank.mean": "sent per rank", "tx_bytes_per_rank.max": "sent, most",
  "overload.avg": "overload, mean", "overload.max": "overload", "overload.max_cum": "overload of a node", "peak_memory_bytes.max": "memory",
  cost_per_million_tokens: "cost per million tokens", winner: "recommended",
};

function title(column: string): string {
  return kNames[column] ?? words(column.replace(/^breakdown_us\./, ""));
}

// The unit of a column's axis.
function unitOf(column: string, largest: number): Unit {
  if (column.includes("_us")) return timeUnit(largest);
  return column.includes("bytes") ? byteUnit(largest) : { factor: 1, name: "" };
}

// `unit`: of the whole column, which then names it; else the value's own beside it.
function shownValue(column: string, value: Value, unit?: Unit): string {
  if (value === null || value === "") return "-";
  if (typeof value !== "number") return `${value}`;
  if (unit?.name) return significant(value * unit.factor, 4);
  if (column.includes("_us")) return time(value);
  if (column.includes("bytes")) return bytes(value);
  if (column === "winner.probability") return probability(value);
  if (column === "fastest_probability") return value.toFixed(2);
  if (["mfu", "expected_loss", "loss_at_most"].includes(column)) return percent(value);
  return number(value);
}

export function sweepPage(data: ReportData): HTMLElement[] {
  const result = data.result;
  const columns = result.columns as string[];
  const paths = columns.slice(1, columns.indexOf("dispatcher"));
  const index = (name: string) => columns.indexOf(name);
  const iDispatcher = index("dispatcher");
  const iTime = index("time_us.value");
  const iWinner = index("winner");
  const iProbability = index("winner.probability");
  const iVerdict = index("verdict");
  const iFits = index("fits");
  const iError = index("error");
  const all: Row[] = (result.rows as Value[][]).map((values) => ({ scenario: values[0] as number, dispatcher: values[iDispatcher] as string, values }));
  const good = all.filter((row) => typeof row.values[iTime] === "number");
  const failed = all.filter((row) => row.values[iError]);
  const winners = good.filter((row) => row.values[iWinner] === true);
  const wins = rollup(winners, (rows) => rows.length, (row) => row.dispatcher);
  const names = [...new Set(good.map((row) => row.dispatcher))].sort((a, b) => (wins.get(b) ?? 0) - (wins.get(a) ?? 0) || a.localeCompare(b));
  const letter = (name: string) => String.fromCharCode(65 + names.indexOf(name));
  // Values of paths in the unit that people use.
  const units = (result.units ?? {}) as Record<string, { name: string; one: number }>;
  const pathValue = (path: string, value: Value) => {
    const unit = units[path];
    return typeof value === "number" && unit ? `${significant(value / unit.one, 4)} ${unit.name}` : `${value ?? "-"}`;
  };
  const place = (row: Row) => paths.map((path, i) => `${path} = ${pathValue(path, row.values[1 + i]!)}`).join(", ");
  const throughput = index("tokens_per_s_per_gpu");
  // A table without the column says nothing of memory.
  const fits = (row: Row) => iFits < 0 || row.values[iFits] === true;
  const better = (a: Row, b: Row) => (fits(a) !== fits(b) ? fits(a) : (a.values[throughput] as number) > (b.values[throughput] as number));
  const best = winners.reduce<Row | undefined>((found, row) => (found && !better(row, found) ? found : row), undefined);
  const beyond = winners.filter((row) => !fits(row)).length;
  const numeric = columns.filter((name, c) => c > 0 && !paths.includes(name) && good.some((row) => typeof row.values[c] === "number") && !name.startsWith("breakdown_us."));
  const distinct = (path: string) => {
    const values = [...new Set(good.map((row) => row.values[index(path)]!))];
    return values.every((v) => typeof v === "number") ? (values as number[]).sort((a, b) => a - b) : values;
  };
  const axes = paths.filter((path) => { const n = distinct(path).length; return n > 1 && n <= 60; });

  const sections: HTMLElement[] = [];

  // A map over two paths: the best scenario of each cell, over all others.
  if (axes.length > 0) {
    let ax = axes[0]!;
    let ay = axes[1] ?? "";
    let show = "winner";
    const holder = h("div");
    const draw = () => {
      const xs = distinct(ax);
      const ys = ay ? [...distinct(ay)].reverse() : [""];
      const cell = new Map<string, Row>();
      for (const row of winners) {
        const key = `${row.values[index(ax)]}|${ay ? row.values[index(ay)] : ""}`;
        const before = cell.get(key);
        if (!before || better(row, before)) cell.set(key, row);
      }
      const at = (r: number, c: number) => cell.get(`${xs[c]}|${ys[r]}`);
      const shared = { rows: ys.map((y) => (ay ? pathValue(ay, y) : "")), columns: xs.map((x) => pathValue(ax, x)), rowTitle: ay || "all", columnTitle: ax,
        text: (r: number, c: number) => {
          const row = at(r, c)!;
          return `${place(row)}: ${row.dispatcher}, ${shownValue("time_us.value", row.values[iTime]!)}` +
            (iProbability >= 0 ? `, probability ${probability(row.values[iProbability] as number)}` : "") + (fits(row) ? "" : "; nothing fits the memory");
        } };
      holder.replaceChildren(
        show === "winner"
          ? grid({ ...shared, description: `The recommended dispatcher over ${ax}${ay ? ` and ${ay}` : ""}`, scaleText: () => "",
              value: (r, c) => (at(r, c) ? 1 : null), cellText: (r, c) => letter(at(r, c)!.dispatcher) + (fits(at(r, c)!) ? "" : "!"),
              paint: (r, c) => { const row = at(r, c)!; return { color: dispatcherVariable(row.dispatcher), unsure: iProbability >= 0 && (row.values[iProbability] as number) < data.sure }; } })
          : grid({ ...shared, description: `${show} over ${ax}${ay ? ` and ${ay}` : ""}`, scaleText: (v) => shownValue(show, v),
              value: (r, c) => { const v = at(r, c)?.values[index(show)]; return typeof v === "number" ? v : null; },
              cellText: (r, c) => shownValue(show, at(r, c)!.values[index(show)]!) }));
    };
    draw();
    const choices = axes.map((path) => ({ value: path, label: path }));
    sections.push(section("Map", "Who wins where? Of the scenarios that share a cell, the one with the most tokens per second and GPU is shown" +
      (beyond ? ", of those that fit the memory where one does; striped: not sure, !: nothing fits." : "; striped: not sure."),
      h("div", { class: "controls" },
        select("Across", choices, ax, (v) => { ax = v; if (ay === ax) ay = axes.find((a) => a !== ax) ?? ""; draw(); }),
        axes.length > 1 ? select("Down", choices, ay, (v) => { ay = v === ax ? "" : v; draw(); }) : null,
        select("Show", [{ value: "winner", label: "the recommended dispatcher" }, ...numeric.map((n) => ({ value: n, label: title(n) }))], show, (v) => { show = v; draw(); })),
      h("div", { class: "kinds" }, ...names.map((name) =>
        h("span", {}, h("span", { class: "swatch", style: `background:${dispatcherColor(name)}` }, letter(name)), `${name} (${wins.get(name) ?? 0})`))),
      holder));
  }

  // Two columns against each other, with the front that nothing beats.
  if (numeric.length > 1) {
    let x = numeric.includes("peak_memory_bytes.max") ? "peak_memory_bytes.max" : numeric[1]!;
    let y = numeric.includes("tokens_per_s_per_gpu") ? "tokens_per_s_per_gpu" : "time_us.value";
    let onlyWinners = false;
    let logX = false;
    let logY = false;
    const holder = h("div");
    const draw = () => {
      const cx = index(x);
      const cy = index(y);
      let rows = (onlyWinners ? winners : good).filter((row) => typeof row.values[cx] === "number" && typeof row.values[cy] === "number");
      const better = (column: string) => (kLower.includes(column) ? 1 : -1);
      const without = rows.filter((row) => !fits(row)).length;
      const points = rows.map((row) => ({ row, x: row.values[cx] as number, y: row.values[cy] as number }));
      points.sort((a, b) => better(x) * (a.x - b.x) || better(y) * (a.y - b.y));
      let least = Infinity;
      const front = new Set<Row>();
      for (const point of points.filter((one) => fits(one.row)))
        if (better(y) * point.y < least) { least = better(y) * point.y; front.add(point.row); }
      const ux = unitOf(x, Math.max(0, ...points.map((p) => Math.abs(p.x))));
      const uy = unitOf(y, Math.max(0, ...points.map((p) => Math.abs(p.y))));
      const axis = (column: string, unit: Unit) => `${title(column)}${unit.name ? ` [${unit.name}]` : ""}`;
      const step = Math.ceil(points.length / kMostPoints);
      const drawn: ScatterPoint[] = points.filter((p, i) => i % step === 0 || front.has(p.row)).map((p) => ({
        x: p.x * ux.factor, y: p.y * uy.factor, series: p.row.dispatcher, front: front.has(p.row), faded: !fits(p.row),
        note: `${p.row.dispatcher}${fits(p.row) ? "" : ", does not fit the memory"}\n${paths.map((path, i) => `${path} = ${pathValue(path, p.row.values[1 + i]!)}`).join("\n")}\n${title(x)}: ${shownValue(x, p.x)}\n${title(y)}: ${shownValue(y, p.y)}` }));
      holder.replaceChildren(
        scatter(`${y} against ${x}`, drawn, names, dispatcherLine, { x: axis(x, ux), y: axis(y, uy), logX: logX && points.every((p) => p.x > 0), logY: logY && points.every((p) => p.y > 0) }),
        h("p", { class: "key" }, `${number(rows.length)} rows${step > 1 ? `, every ${step}th drawn` : ""}; the line joins the ${front.size} that nothing beats in both` +
          `${without > 0 ? ` and that fit; ${number(without)} that do not fit the memory are faded` : ""} ` +
          `(${kLower.includes(x) ? "less" : "more"} ${title(x)}, ${kLower.includes(y) ? "less" : "more"} ${title(y)}).`));
    };
    draw();
    const choices = [...axes.filter((path) => distinct(path).every((v) => typeof v === "number")), ...numeric].map((n) => ({ value: n, label: title(n) }));
    sections.push(section("Trade-offs", "What does one good thing cost in another?",
      h("div", { class: "controls" },
        select("Across", choices, x, (v) => { x = v; draw(); }), select("Up", choices, y, (v) => { y = v; draw(); }),
        checkbox("recommended dispatcher only", onlyWinners, (on) => { onlyWinners = on; draw(); }),
        checkbox("logarithmic across", logX, (on) => { logX = on; draw(); }), checkbox("logarithmic up", logY, (on) => { logY = on; draw(); })),
      holder));
  }

  const used = columns.map((name, c) => ({ name, c })).filter(({ name, c }) => name !== "error" || failed.length > 0 ? all.some((row) => row.values[c] !== null && row.values[c] !== "") : false);
  // Values that all rows share are told once, above the table.
  const alike = all.length > 1 ? used.filter(({ c }) => c > 0 && all.every((row) => row.values[c] === all[0]!.values[c])) : [];
  const cells: Column<Row>[] = used.filter((one) => !alike.includes(one)).map(({ name, c }) => {
    const numbers = good.map((row) => row.values[c]).filter((v) => typeof v === "number") as number[];
    const unit = unitOf(name, numbers.reduce((most, v) => Math.max(most, Math.abs(v)), 0));
    return {
      title: paths.includes(name) ? name : title(name) + (unit.name ? ` [${unit.name}]` : ""), numeric: numbers.length > 0,
      text: (row) => (c === 0 ? `${row.values[0]}` : paths.includes(name) ? pathValue(name, row.values[c] ?? null) : shownValue(name, row.values[c] ?? null, unit)),
      value: (row) => (typeof row.values[c] === "number" ? (row.values[c] as number) : `${row.values[c] ?? ""}`),
    };
  });
  sections.push(section("Rows", "What are the numbers of a scenario?",
    alike.length > 0 ? h("p", { class: "key" }, `The same in all rows: ${alike.map(({ name, c }) => `${paths.includes(name) ? name : title(name)} ${paths.includes(name) ? pathValue(name, all[0]!.values[c]!) : shownValue(name, all[0]!.values[c]!)}`).join(", ")}.`) : null,
    table(all, cells, { caption: "Rows as in the file", filter: true, most: 200, best: (row) => row === best })));

  const left = result.left_out as string | undefined;
  return report(data, `${number(result.scenarios as number)} scenarios${result.model ? ` of ${nameOf(result.model, "a model")}` : ""}`, `Over ${paths.join(", ")}; ${number(all.length)} rows here.${left ? ` Left out of this page: ${left}.` : ""}`,
    [answer(names.filter((name) => wins.get(name)).map((name, i) => `${name} ${i === 0 ? "is recommended in" : "in"} ${number(wins.get(name)!)}${i === 0 ? ` of ${number(winners.length)} scenarios` : ""}`).join(", ") +
      (iVerdict >= 0 ? `; clear or safe in ${number(winners.filter((row) => ["clear", "safe", "only_one"].includes(row.values[iVerdict] as string)).length)} of them` : "") +
      (beyond ? `; nothing fits the memory in ${number(beyond)}.` : "."),
      best ? `The most tokens per second and GPU: ${number(Math.round(best.values[throughput] as number))} by ${best.dispatcher} at ${place(best)}${fits(best) ? "" : ", which does not fit the memory"}.` +
        (failed.length > 0 ? ` ${number(failed.length)} rows have no forecast.` : "") : undefined)],
    ...sections,
  );
}
