// Light, dark, or as the system says. Nothing is stored: a file opened from a disk has no place for it.
import { button } from "./dom";

type Theme = "light" | "dark";

function systemTheme(): Theme {
  return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function applyTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new CustomEvent("moesim-theme"));
}

export function themeButton(): HTMLElement {
  applyTheme(systemTheme());
  let chosen = false;
  const name = () => (document.documentElement.dataset.theme === "dark" ? "Light" : "Dark");
  const control = button(name(), "switch between light and dark", () => {
    chosen = true;
    applyTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    control.textContent = name();
  });
  control.id = "theme";
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (!chosen) applyTheme(systemTheme());
    control.textContent = name();
  });
  // Paper is white.
  let before: Theme = "light";
  let opened: HTMLDetailsElement[] = [];
  window.addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme as Theme;
    applyTheme("light");
    // Parts cannot be opened on paper: the notes are printed open.
    opened = [...document.querySelectorAll<HTMLDetailsElement>("details.warnings:not([open])")];
    for (const one of opened) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    applyTheme(before);
    for (const one of opened) one.open = false;
  });
  return control;
}
