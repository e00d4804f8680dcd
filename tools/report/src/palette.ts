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

// Colour of the current theme, for canvases.
export function cssColor(variable: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// Parts of memory; gradients and the optimizer are those of the time.
export function memoryColor(part: string): string {
  return part === "gradients" ? "var(--c-grad_sync)" : part === "optimizer" ? "var(--c-optimizer)" : `var(--m-${part})`;
}

// Causes of a replay's time, in the colours of the categories that they are made of.
const kCauses: Record<string, string> = {
  computing: "--c-attention", network: "--c-dispatch", gradient_sync: "--c-grad_sync", host: "--c-host_sync", bubble: "--c-bubble",
  routing_skew: "--c-straggler_wait", attention_skew: "--c-router", contention: "--c-combine",
};

export function causeColor(cause: string): string {
  return `var(${kCauses[cause] ?? "--c-other"})`;
}

// Colour of a series that is no category, strong enough for thin lines and small symbols.
export function lineColor(index: number): string {
  return `var(--l-${index % 8})`;
}

// A dispatcher has one hue on every page: by its place in the catalogue, so that those which are compared most differ most.
// There are more dispatchers than hues; letters, dashes and symbols tell the rest apart.
const kHues = [0, 5, 1, 6, 2, 4, 3, 7];
let catalogue: string[] = [];

export function knowDispatchers(names: string[]): void {
  catalogue = names;
}

function hueOf(dispatcher: string): number {
  const name = dispatcher.split(":")[0]!;
  const place = catalogue.indexOf(name);
  const other = [...name].reduce((sum, letter) => (31 * sum + letter.charCodeAt(0)) % 65521, 7);
  return kHues[(place >= 0 ? place : other) % kHues.length]!;
}

export function dispatcherVariable(dispatcher: string): string {
  return `--s-${hueOf(dispatcher)}`;
}

export function dispatcherColor(dispatcher: string): string {
  return `var(${dispatcherVariable(dispatcher)})`;
}

export function dispatcherLine(dispatcher: string): string {
  return lineColor(hueOf(dispatcher));
}
