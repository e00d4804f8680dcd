// Numbers for people: three to four digits that matter, units that fit.

export function significant(value: number, digits: number): string {
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.max(0, Math.min(6, digits - 1 - magnitude)));
}

export interface Unit {
  factor: number;
  name: string;
}

// The unit in which the largest of some values reads well; one unit for a whole chart.
const readable = (...units: [size: number, name: string][]) => (largest: number): Unit => {
  const [size, name] = units.find(([size]) => largest >= 10 * size) ?? units[units.length - 1]!;
  return { factor: 1 / size, name };
};
export const timeUnit = readable([1e6, "s"], [1e3, "ms"], [1, "us"]);
export const byteUnit = readable([1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]);

export function time(us: number, unit: Unit = timeUnit(Math.abs(us))): string {
  return `${significant(us * unit.factor, 4)} ${unit.name}`;
}

export function bytes(count: number, unit: Unit = byteUnit(Math.abs(count))): string {
  return `${significant(count * unit.factor, 3)} ${unit.name}`;
}

export function number(value: number, digits = 4): string {
  return Number.isInteger(value) ? value.toLocaleString("en") : significant(value, digits);
}

export function percent(share: number, places = 1): string {
  return `${(100 * share).toFixed(places)} %`;
}

// A share of draws: no number of draws makes anything certain.
export function probability(share: number): string {
  return share > 0.995 ? "more than 99 %" : share < 0.005 ? "less than 1 %" : percent(share, 0);
}

export function signedPercent(share: number, places = 1): string {
  return `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(places)} %`;
}

// A model or a machine: the name that it was called by or that it has.
export function nameOf(value: unknown, otherwise: string): string {
  if (typeof value === "string" && value !== "") return value;
  const name = value && typeof value === "object" ? (value as { name?: unknown }).name : undefined;
  return typeof name === "string" && name !== "" ? name : otherwise;
}

// Categories and keys as people read them: "straggler_wait" is "straggler wait".
export function words(key: string): string {
  return key.replace(/_/g, " ");
}

// "15 T", "4.2 M"; whole below a thousand.
export function count(value: number): string {
  for (const [size, name] of [[1e12, "T"], [1e9, "B"], [1e6, "M"]] as [number, string][])
    if (value >= size) return `${Number((value / size).toPrecision(3))} ${name}`;
  return number(value);
}

// As the command line writes days and money: three digits or whole.
export function short(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}

export function money(value: number, currency: string): string {
  const sign = currency === "USD" ? "$" : `${currency} `;
  for (const [size, name] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]] as [number, string][])
    if (value >= size) return `${sign}${short(value / size)} ${name}`;
  return `${sign}${short(value)}`;
}

// "TP 2" of every size of a plan above one.
export function sizesOf(parallel: object, between = " "): string[] {
  const sizes = parallel as Record<string, number>;
  return ["tp", "cp", "pp", "vpp", "ep", "etp", "dp"].filter((k) => (sizes[k] ?? 1) > 1).map((k) => `${k.toUpperCase()}${between}${sizes[k]}`);
}

// A word as a shell reads it.
export const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`);
