// Bytes from rank to rank, one matrix at a time.
import type { MatrixData } from "./data";
import { chosen, h, named } from "./dom";
import { bytes, percent } from "./format";
import { grid } from "./grid";

export function matrixView(matrices: MatrixData[]): HTMLElement {
  const draw = (title: string) => {
    const matrix = matrices.find((one) => one.title === title)!;
    const R = matrix.ranks;
    const names = Array.from({ length: R }, (_, i) => `${i}`);
    const sent = (r: number) => matrix.bytes.slice(r * R, (r + 1) * R).reduce((sum, value) => sum + value, 0);
    const all = matrix.bytes.reduce((sum, value) => sum + value, 0);
    return [
      grid({
        description: `Bytes that ${title} sends from rank to rank`,
        rows: names, columns: names, rowTitle: "From rank (down)", columnTitle: "to rank (across)", square: true, from: 0,
        value: (r, c) => (r === c ? null : matrix.bytes[r * R + c]!),
        text: (r, c) => `rank ${r} sends ${bytes(matrix.bytes[r * R + c]!)} to rank ${c}, ${percent(matrix.bytes[r * R + c]! / (sent(r) || 1))} of what it sends and ${percent(matrix.bytes[r * R + c]! / (all || 1), 2)} of all`,
        ...(R <= 8 ? { cellText: (r: number, c: number) => bytes(matrix.bytes[r * R + c]!) } : {}), scaleText: (value) => bytes(value),
      }),
    ];
  };
  const [controls, picture] = chosen("Dispatcher", named(matrices.map((one) => one.title)), matrices[0]!.title, draw);
  return h("div", {}, matrices.length > 1 && controls, picture);
}
