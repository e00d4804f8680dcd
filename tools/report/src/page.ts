// Shared parts of every report: a title, the answer, warnings, and the inputs to make it again.
import type { ReportData, Result } from "./data";
import { button, h, section } from "./dom";
import { quoted } from "./format";
import { themeButton } from "./theme";
import { table } from "./table";

function header(title: string, about: string, verb: string): HTMLElement {
  const print = button("Print", "print, or save as PDF", () => window.print());
  return h(
    "header",
    {},
    h("div", { class: "bar" },
      h("span", { class: "name" }, `moesim ${verb}`),
      h("span", { class: "buttons" }, themeButton(), print)),
    h("h1", {}, title),
    h("p", { class: "about" }, about),
  );
}

// The answer in one sentence, and why.
export function answer(sentence: string, because?: string): HTMLElement {
  return h("div", { class: "answer", id: "answer" }, h("p", {}, sentence), because ? h("p", { class: "because" }, because) : null);
}

function warnings(result: Result): HTMLElement | null {
  if (result.warnings.length === 0) return null;
  return h(
    "details",
    { class: "warnings", open: result.warnings.length <= 3 },
    h("summary", {}, `${result.warnings.length} ${result.warnings.length === 1 ? "thing" : "things"} to know`),
    h("ul", {}, ...result.warnings.map((warning) => h("li", {}, warning))),
  );
}

function reproduce(data: ReportData): HTMLElement {
  const { result } = data;
  const command = `moesim ${(result.inputs.command ?? []).map(quoted).join(" ")}`;
  const files = Object.entries(result.inputs.files ?? {}).map(([name, about]) => ({ name, sha: about.sha256 }));
  const rest = Object.fromEntries(
    Object.entries(result.inputs).filter(([key]) => key !== "command" && key !== "files"),
  );
  const save = h("a", { download: `moesim-${data.verb}.json`, class: "button", href: "#" }, "Save the JSON result");
  save.addEventListener("click", () => {
    if (save.href.startsWith("blob:")) return;
    save.href = URL.createObjectURL(new Blob([JSON.stringify(result, null, 2)], { type: "application/json" }));
  });
  return section(
    "Make it again",
    "Everything that went in: the same command with the same files gives the same bytes.",
    h("pre", { class: "command", tabindex: 0, "aria-label": "command line" }, command),
    h("p", {}, `moesim ${result.version}, schema ${result.schema}. `, save),
    h("details", {}, h("summary", {}, "Inputs"),
      h("pre", { tabindex: 0, "aria-label": "inputs" }, JSON.stringify(rest, null, 2))),
    files.length > 0
      ? h("details", {}, h("summary", {}, `${files.length} input ${files.length === 1 ? "file" : "files"} with ${files.length === 1 ? "its" : "their"} SHA-256`),
          table(files, [{ title: "file", text: (f) => f.name }, { title: "SHA-256", text: (f) => f.sha }],
                { caption: "Input files" }))
      : null,
  );
}

export type Part = HTMLElement | null | undefined | false | "";

// A whole report: its title, what leads it (the answer), what there is to know, the parts that it has, how to make it again.
export function report(data: ReportData<any>, title: string, about: string, lead: Part[], ...parts: Part[]): HTMLElement[] {
  const all = [header(title, about, data.verb), ...lead, warnings(data.result), ...parts, reproduce(data)];
  return all.filter((part): part is HTMLElement => part instanceof HTMLElement);
}
