// Data that the binary writes into the page: the JSON result of a verb, and data for pictures only. The types of results
// are made from the program's columns (tools/result_types.py), where types are checked.
import type { Compare, Estimate } from "./results";

export type { Estimate };

// The result of any verb; what a verb adds is in the type of its own.
export type Result = Pick<Compare, "schema" | "version" | "inputs" | "warnings"> & { [key: string]: any };

// A stream of one rank. Slices are columns of equal length: index of the name, index of the category, start as the
// distance from the end of the slice before, length; and the index of a note, -1 for none. In `unit_us`.
export interface TrackData {
  rank: number;
  stream: string;
  name: number[];
  category: number[];
  gap: number[];
  length: number[];
  note: number[];
}

// Memory or sent bytes of a rank over time; a value holds until the next. `gap` is the distance from the point before.
export interface CounterData {
  rank: number;
  name: string; // with its unit in brackets
  gap: number[];
  value: number[];
}

export interface TimelineData {
  title: string;
  of: string; // what has the tracks: "rank" or "stage"
  end_us: number;
  unit_us: number;
  ranks: number; // of the job; tracks may be of fewer
  names: string[];
  notes: string[];
  tracks: TrackData[];
  counters?: CounterData[];
  left_out: string[];
}

// When the passes of a step run on every stage, as the forecast timed them.
export interface PipelineData {
  title: string; // the dispatcher
  stages: number;
  microbatches: number;
  chunks: number;
  critical_stage: number;
  end_us: number;
  passes: number; // of the whole step; `boxes` are those that a window shows
  windows: { what: string; from_us: number; to_us: number }[];
  rows: { stage: number; after_from_us: number; after_to_us: number; idle: number }[];
  // stage, kind, microbatch, chunk, from, to; of a forward that runs with a backward, its microbatch and chunk
  boxes: [number, string, number, number, number, number, number?, number?][];
}

// bytes[from * ranks + to] over one training step of the layer, all passes together.
export interface MatrixData {
  title: string;
  ranks: number;
  bytes: number[];
}

export interface ReportData<R = Result> {
  schema: string;
  verb: string;
  sure: number; // from this probability on a winner is named
  categories: string[];
  dispatchers: string[]; // all that are built in, in the order of the catalogue
  result: R;
  timelines: TimelineData[];
  pipelines: PipelineData[];
  matrices: MatrixData[];
  gpus_per_node: number;
}

export function readData(): ReportData {
  const element = document.getElementById("moesim-data");
  if (!element?.textContent) throw new Error("the page holds no data");
  return JSON.parse(element.textContent) as ReportData;
}
