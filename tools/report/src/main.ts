// Picks the page of the verb.
import { readData, type ReportData } from "./data";
import { h, section } from "./dom";
import { comparePage } from "./compare";
import { report } from "./page";
import { planPage } from "./plan";
import { knowDispatchers } from "./palette";
import { replayPage } from "./replay";
import { sweepPage } from "./sweep";
import { validatePage } from "./validate";
import { whatifPage } from "./whatif";

const pages: Record<string, (data: ReportData<any>) => HTMLElement[]> = {
  compare: comparePage,
  plan: planPage,
  replay: replayPage,
  sweep: sweepPage,
  validate: validatePage,
  whatif: whatifPage,
};

// A verb without a page of its own: its result, readable.
const plainPage = (data: ReportData): HTMLElement[] => report(data, `Result of ${data.verb}`, "", [],
  section("Result", "", h("pre", { tabindex: 0, "aria-label": "result" }, JSON.stringify(data.result, null, 2))));

function start(): void {
  const data = readData();
  knowDispatchers(data.dispatchers);
  const main = h("main");
  document.body.append(main);  // first, so that charts know their width
  main.append(...(pages[data.verb] ?? plainPage)(data));
  document.title = `${main.querySelector("h1")!.textContent} - moesim ${data.verb}`;
  document.documentElement.dataset.ready = "true";
}

start();
