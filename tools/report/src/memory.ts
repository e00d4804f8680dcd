// Memory of the stages of a step by cause: the tree that `--detail memory` prints.
import { group } from "d3";
import { h } from "./dom";
import { bytes, percent } from "./format";
import type { Compare } from "./results";

type Memory = Compare["scenarios"][number]["memory"];
type Stage = Memory["stages"][number];
type Cause = Stage["causes"][number];

const sum = (causes: Cause[]): number => causes.reduce((all, c) => all + c.bytes, 0);

// Groups in the order of their bytes, largest first.
const grouped = (causes: Cause[], key: (c: Cause) => string): [string, Cause[]][] =>
  [...group(causes, key)].sort(([, a], [, b]) => sum(b) - sum(a));

function line(name: string, held: number, of: number): string {
  return `${name}: ${bytes(held)}, ${percent(held / of)}`;
}

function tree(stage: Stage): HTMLElement {
  return h("ul", { class: "tree" }, ...grouped(stage.causes, (c) => c.kind).map(([kind, ofKind]) =>
    h("li", {}, line(kind, sum(ofKind), stage.total_bytes),
      h("ul", {}, ...grouped(ofKind, (c) => c.what.split("/")[0]!).map(([trunk, branches]) => {
        const named = branches.filter((c) => c.what.includes("/"));
        return h("li", {}, line(trunk, sum(branches), stage.total_bytes),
          named.length > 0
            ? h("ul", {}, ...named.map((c) => h("li", {}, line(c.what.slice(trunk.length + 1), c.bytes, stage.total_bytes))))
            : null);
      })))));
}

// One part that opens for each stage; the fullest stage first. Null where the result has no stages.
export function memoryTree(dispatcher: string, memory: Memory): HTMLElement | null {
  if (memory.stages.length === 0) return null;
  const order = memory.stages.map((stage, index) => ({ stage, index })).sort((a, b) => b.stage.total_bytes - a.stage.total_bytes);
  const host = memory.host_bytes;
  return h("details", { class: "memory-tree" },
    h("summary", {}, `${dispatcher}: what holds the memory, cause by cause`),
    host ? h("p", { class: "key" }, `One rank holds ${bytes(host)} more in the host's memory.`) : null,
    ...order.map(({ stage, index }) => h("details", {},
      h("summary", {}, `Stage ${index}: ${bytes(stage.total_bytes)} in ${stage.moment} ` +
        `(${bytes(stage.low_bytes)} to ${bytes(stage.high_bytes)} over draws of routing), fits with probability ${stage.fits_probability.toFixed(2)}`),
      tree(stage))));
}
