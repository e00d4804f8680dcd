// Load per rank: one quantity at a time, ranks side by side, one row per alternative.
import { chosen, h } from "./dom";
import { grid } from "./grid";

export interface RankRow {
  label: string;
  values: Record<string, number[]>; // by quantity
}

export interface Quantity {
  key: string;
  label: string;
  text: (value: number, largest: number) => string; // largest: of all ranks, for the unit
  fromZero?: boolean;
}

export function rankGrid(rows: RankRow[], quantities: Quantity[], gpusPerNode: number): HTMLElement {
  const usable = quantities.filter((quantity) => rows.some((row) => row.values[quantity.key]?.length));
  const largest = new Map(usable.map(({ key }) => [key, Math.max(...rows.map((row) => (row.values[key] ?? []).reduce((a, b) => Math.max(a, b), 0)))]));
  const textOf = (quantity: Quantity, value: number) => quantity.text(value, largest.get(quantity.key)!);
  const draw = (key: string) => {
    const quantity = usable.find((one) => one.key === key)!;
    const ranks = Math.max(...rows.map((row) => row.values[key]?.length ?? 0));
    // One row of ranks per alternative; a single alternative with many ranks is folded, whole nodes per line.
    const folded = rows.length === 1 && ranks > 64;
    const perLine = folded ? Math.max(gpusPerNode, Math.floor(64 / gpusPerNode) * gpusPerNode) : ranks;
    const lines = folded ? Math.ceil(ranks / perLine) : rows.length;
    const at = (row: number, column: number) => (folded ? { row: 0, rank: row * perLine + column } : { row, rank: column });
    return [
      grid({
        description: `${quantity.label} of every rank`,
        rows: folded
          ? Array.from({ length: lines }, (_, i) => `${i * perLine} to ${Math.min(ranks, (i + 1) * perLine) - 1}`)
          : rows.map((row) => row.label),
        columns: Array.from({ length: perLine }, (_, i) => (folded ? `+${i}` : `${i}`)),
        rowTitle: folded ? "Ranks" : "Rows",
        columnTitle: "rank",
        value: (r, c) => {
          const place = at(r, c);
          return rows[place.row]!.values[key]?.[place.rank] ?? null;
        },
        text: (r, c) => {
          const place = at(r, c);
          const row = rows[place.row]!;
          const others = usable.filter((one) => one.key !== key && row.values[one.key]?.length);
          const values = row.values[key]!;
          const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
          const times = mean > 0 ? `, ${(values[place.rank]! / mean).toFixed(2)} times the mean` : "";
          return (
            `${row.label ? row.label + ", " : ""}rank ${place.rank}: ${quantity.label} ${textOf(quantity, values[place.rank]!)}${times}` +
            (others.length > 0 ? "; " + others.map((one) => `${one.label} ${textOf(one, row.values[one.key]![place.rank]!)}`).join(", ") : "")
          );
        },
        cellText: (r, c) => {
          const place = at(r, c);
          return textOf(quantity, rows[place.row]!.values[key]![place.rank]!);
        },
        scaleText: (value) => textOf(quantity, value),
        from: quantity.fromZero ? 0 : undefined,
      }),
    ];
  };
  if (usable.length === 0) return h("p", {}, "Nothing is known of single ranks.");
  return h("div", {}, ...chosen("Show", usable.map((one) => ({ value: one.key, label: one.label })), usable[0]!.key, draw));
}
