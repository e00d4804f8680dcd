// One colour per category of time, the same in every picture and every run. Hues are of Okabe and Ito's set, which
// people with colour-blindness can tell apart; light and dark variants stand in style.css as --c-<category>.

const kKnown = new Set([
  "attention", "router", "permute", "dispatch", "expert", "combine", "unpermute", "host_sync", "straggler_wait",
  "bubble", "grad_sync", "optimizer", "p2p", "embedding", "loss", "other",
]);

export function categoryVariable(category: string): string {
  return `--c-${kKnown.has(category) ? category : "other"}`;
}

export function categoryColor(category: string): string {
  return `var(${categoryVariable(category)})`;
}

// Of the theme that shows now, for canvases.
export function cssColor(variable: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// Series that are no categories: parts of memory, forecasts and measurements.
export function seriesColor(index: number): string {
  return `var(--s-${index % 8})`;
}

// The same hue, strong enough for thin lines and small symbols.
export function lineColor(index: number): string {
  return `var(--l-${index % 8})`;
}
