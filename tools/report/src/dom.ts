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
