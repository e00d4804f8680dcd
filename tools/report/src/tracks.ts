// Timelines as they come, made ready to draw: starts and ends in microseconds, sorted on every track.
import { bisectRight } from "d3";
import type { TimelineData } from "./data";

export interface Track {
  title: string; // of the timeline: a dispatcher, forecast, measured
  rank: number;
  of: string; // what has the track: "rank" or "stage"
  stream: string;
  start: Float64Array;
  end: Float64Array;
  name: string[];
  category: string[];
  note: string[];
  counter?: { at: Float64Array; value: Float64Array; most: number }; // instead of slices
}

export function tracksOf(timelines: TimelineData[], categories: string[]): Track[] {
  const tracks: Track[] = [];
  for (const timeline of timelines)
    for (const data of timeline.tracks) {
      const n = data.name.length;
      const start = new Float64Array(n);
      const end = new Float64Array(n);
      let at = 0;
      for (let i = 0; i < n; ++i) {
        start[i] = at + data.gap[i]!;
        at = start[i]! + data.length[i]!;
        end[i] = at * timeline.unit_us;
        start[i]! *= timeline.unit_us;
      }
      tracks.push({
        title: timelines.length > 1 ? timeline.title : "",
        rank: data.rank,
        of: timeline.of,
        stream: data.stream,
        start,
        end,
        name: data.name.map((i) => timeline.names[i]!),
        category: data.category.map((i) => categories[i]!),
        note: data.note.map((i) => (i < 0 ? "" : timeline.notes[i]!)),
      });
    }
  for (const timeline of timelines)
    for (const data of timeline.counters ?? []) {
      const at = new Float64Array(data.gap.length);
      let units = 0;
      data.gap.forEach((gap, i) => { units += gap; at[i] = units * timeline.unit_us; });
      const most = timelines.reduce((high, one) =>
        (one.counters ?? []).reduce((h, c) => (c.name === data.name ? c.value.reduce((a, b) => Math.max(a, b), h) : h), high), 0);
      tracks.push({
        title: timelines.length > 1 ? timeline.title : "", rank: data.rank, of: timeline.of, stream: data.name,
        start: new Float64Array(0), end: new Float64Array(0), name: [], category: [], note: [],
        counter: { at, value: Float64Array.from(data.value), most },
      });
    }
  return tracks;
}

// The first slice that ends after `at`.
export const firstAfter = (track: Track, at: number): number => bisectRight(track.end, at);

// The last of ascending points that is not after `at`; -1 where there is none.
export const lastUntil = (points: Float64Array, at: number): number => bisectRight(points, at) - 1;

// "0-3, 8" as a test of ranks; null where the text is no such list.
export function rankTest(text: string): ((rank: number) => boolean) | null {
  const ranges: [number, number][] = [];
  for (const piece of text.split(",")) {
    if (!piece.trim()) continue;
    const match = /^\s*(\d+)\s*(?:-\s*(\d+))?\s*$/.exec(piece);
    if (!match) return null;
    ranges.push([Number(match[1]), Number(match[2] ?? match[1])]);
  }
  if (ranges.length === 0) return () => true;
  return (rank) => ranges.some(([from, to]) => from <= rank && rank <= to);
}
