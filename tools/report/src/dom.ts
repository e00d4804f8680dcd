// Elements without a framework.

type Child = Node | string | null | undefined | false;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | undefined> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

let nextId = 0;
export function freshId(what: string): string {
  return `${what}-${++nextId}`;
}

// A part of the page with a heading and the question that it answers.
export function section(title: string, question: string, ...children: Child[]): HTMLElement {
  const id = freshId("section");
  return h(
    "section",
    { "aria-labelledby": id },
    h("h2", { id }, title),
    question ? h("p", { class: "question" }, question) : null,
    ...children,
  );
}

export interface Choice<T extends string> {
  value: T;
  label: string;
}

// A labelled drop-down.
export function select<T extends string>(
  label: string,
  choices: Choice<T>[],
  value: T,
  changed: (value: T) => void,
): HTMLElement {
  const id = freshId("select");
  const box = h("select", { id });
  for (const choice of choices) {
    const option = h("option", { value: choice.value }, choice.label);
    if (choice.value === value) option.selected = true;
    box.append(option);
  }
  box.addEventListener("change", () => changed(box.value as T));
  return h("span", { class: "control" }, h("label", { for: id }, label), box);
}

// A drop-down, and what `draw` makes of the value that is chosen.
export function chosen<T extends string>(label: string, choices: Choice<T>[], value: T, draw: (value: T) => Child[]): [HTMLElement, HTMLElement] {
  const holder = h("div", {}, ...draw(value));
  const redraw = (now: T) => holder.replaceChildren(...draw(now).filter((child): child is Node | string => Boolean(child)));
  return [h("div", { class: "controls" }, select(label, choices, value, redraw)), holder];
}

// Choices that are called by their values.
export const named = (values: string[]): Choice<string>[] => values.map((value) => ({ value, label: value }));

export function checkbox(label: string, checked: boolean, changed: (checked: boolean) => void): HTMLElement {
  const id = freshId("check");
  const box = h("input", { type: "checkbox", id });
  box.checked = checked;
  box.addEventListener("change", () => changed(box.checked));
  return h("span", { class: "control" }, box, h("label", { for: id }, label));
}

export function textInput(label: string, placeholder: string, changed: (text: string) => void): HTMLElement {
  const id = freshId("text");
  const box = h("input", { type: "search", id, placeholder });
  box.addEventListener("input", () => changed(box.value));
  return h("span", { class: "control" }, h("label", { for: id }, label), box);
}

export function button(label: string, title: string, pressed: () => void): HTMLButtonElement {
  const element = h("button", { type: "button", title, "aria-label": title }, label);
  element.addEventListener("click", pressed);
  return element;
}

// The context of a canvas of this size, sharp on the screen, with nothing drawn.
export function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.ceil(width * ratio);
  canvas.height = Math.ceil(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  return context;
}

// Calls `draw` with the width of `holder` now, whenever the width changes, and when the theme does.
export function whenSized(holder: HTMLElement, draw: (width: number) => void): void {
  let drawn = 0;
  const redraw = (force: boolean) => {
    const width = Math.floor(holder.clientWidth);
    if (width === 0 || (!force && width === drawn)) return;
    drawn = width;
    draw(width);
  };
  let frame = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => redraw(false));
  }).observe(holder);
  document.addEventListener("moesim-theme", () => redraw(true));
}
