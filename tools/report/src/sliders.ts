// Sliders of the page of `moesim serve`, with their steps.
import { number } from "./format";

// The bandwidth of a NIC where it is not the machine's.
export const kBandwidth = "cluster.nic.bandwidth";

export interface Slider {
  path: string;
  label: string;
  values: string[]; // the first may be "": not said
  unsaid?: string; // what that means
  chosen?: boolean; // not said, it is what the answer chose
  step?: boolean; // of scope step alone
  range: string; // over which the winner may change, as `--crossover` takes it
  crossed?: string; // the path that it takes there, where it is another
  shown?: (value: string) => string;
}

const powers = (low: number, high: number) => {
  const all: string[] = [];
  for (let value = low; value <= high; value *= 2) all.push(String(value));
  return all;
};
const sizes = powers(1, 64);
const bandwidths = ["", "5", "10", "12.5", "20", "25", "37.5", "50", "75", "100", "150", "200", "300", "400"];
const exponents = ["", ...Array.from({ length: 20 }, (_, i) => ((i + 1) / 10).toFixed(1))];

export const kSliders: Slider[] = [
  { path: kBandwidth, label: "NIC bandwidth", values: bandwidths.map((v) => (v ? `${v}GBps` : "")), unsaid: "the machine's",
    range: "5GBps..400GBps:x2", shown: (v) => v.replace("GBps", " GB/s") },
  { path: "parallel.ep", label: "EP", values: ["", ...powers(1, 256)], unsaid: "chosen", chosen: true, range: powers(1, 256).join(",") },
  { path: "topk", label: "Top-k", values: ["", ...Array.from({ length: 16 }, (_, i) => String(i + 1))], unsaid: "the model's", range: "1..16" },
  { path: "routing", label: "Skew (Zipf)", values: exponents.map((v) => (v ? `zipf:${v}` : "")), unsaid: "balanced",
    range: ["0", "0.2", "0.4", "0.6", "0.8", "1", "1.2", "1.6", "2"].join(","), crossed: "routing.zipf", shown: (v) => v.replace("zipf:", "") },
  { path: "parallel.seq", label: "Tokens per sequence", values: ["", ...powers(256, 131072)], unsaid: "4,096", range: powers(256, 131072).join(","),
    shown: (v) => number(Number(v)) },
  { path: "parallel.micro_batch", label: "Sequences per microbatch", values: ["", ...powers(1, 32)], unsaid: "chosen", chosen: true, range: powers(1, 32).join(",") },
  { path: "parallel.tp", label: "TP", values: ["", ...powers(1, 8)], unsaid: "chosen", chosen: true, range: powers(1, 8).join(",") },
  { path: "parallel.pp", label: "PP", values: ["", ...sizes], unsaid: "chosen", chosen: true, range: sizes.join(","), step: true },
  { path: "parallel.microbatches", label: "Microbatches", values: ["", ...powers(1, 512)], unsaid: "follows from the batch", chosen: true, range: powers(1, 512).join(","), step: true },
];
