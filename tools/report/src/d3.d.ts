// Types of the d3 functions that the page uses. Plot depends on d3, which has no types.
declare module "d3" {
  export function bisectRight(ascending: ArrayLike<number>, value: number): number;
  export function group<T>(values: T[], key: (value: T) => string): Map<string, T[]>;
  export function interpolateRgb(from: string, to: string): (share: number) => string;
  export function rollup<T, R>(values: T[], reduce: (values: T[]) => R, key: (value: T) => string): Map<string, R>;
}
