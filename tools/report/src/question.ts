// The question of the page of `moesim serve`: in its address, as the scenario that the server is asked, as a command line.
import { kBandwidth } from "./sliders";

export interface Field {
  path: string;
  flag: string; // empty: the command line has none
  kind: "number" | "boolean" | "text";
  fallback: string;
  help: string;
  choices?: string[];
}

// A question is texts by the paths of fields, as the command line takes them; besides "cluster" the page has two of its
// own: how many nodes, and the bandwidth of a NIC where it is not the machine's.
export type Question = Map<string, string>;
type Said = [string, string][];
export const kNodes = "nodes";
// Goals of a planned training: tokens, deadline, budget, other machines.
export const kPlan = "plan.";

// A run that was measured and the loss that is accepted, as the options of the command line take them.
export const kAnchoring = ["measured", "tolerance"];
const isAnchoring = (path: string) => kAnchoring.includes(path);
export const anchoringOf = (question: Question): Record<string, string> =>
  Object.fromEntries(kAnchoring.filter((name) => question.get(name)).map((name) => [name, question.get(name)!]));

// The job that the page opens with. All that is not said is the server's to fill, as for the command line.
export const kStart: Said = [["model", "gpt-oss-20b"], ["cluster", "dgx-h100xN"], [kNodes, "4"]];

let fields: Field[] = [];
export const knowFields = (all: Field[]) => void (fields = all);
export const field = (path: string) => fields.find((one) => one.path === path);

// Reads the question in an address, on top of the page's initial job.
export function read(hash: string): Question {
  const question: Question = new Map(kStart);
  for (const [path, text] of new URLSearchParams(hash.slice(1))) question.set(path, text);
  return question;
}

export function fragment(question: Question): string {
  const said = new URLSearchParams();
  const defaults = new Map(kStart);
  for (const [path, text] of question) if (text !== (defaults.get(path) ?? "")) said.append(path, text);
  return said.toString();
}

// A text as the JSON value of its field, so that it is read as a file's.
function valueOf(path: string, text: string): unknown {
  if (/^\s*[[{]/.test(text)) return JSON.parse(text);
  const kind = field(path)?.kind;
  if (kind === "number" && /^-?\d+(\.\d+)?(e-?\d+)?$/i.test(text.trim())) return Number(text);
  if (kind === "boolean" && (text === "true" || text === "false")) return text === "true";
  return text;
}

function clusterOf(question: Question): unknown {
  const type = question.get("cluster")!;
  const name = /N$/.test(type) ? type.replace(/N$/, question.get(kNodes) || "1") : type;
  const bandwidth = question.get(kBandwidth);
  return bandwidth ? { base: name, nic: { bandwidth } } : name;
}

// The fields that are said, as a command line or a file says them, without the machine.
export const saidOf = (question: Question): Said =>
  [...question].filter(([path, text]) => text !== "" && path !== kNodes && path !== kBandwidth && path !== "cluster" && !isAnchoring(path) && !path.startsWith(kPlan));

export function scenarioOf(question: Question, said: Said): Record<string, unknown> {
  // Without a prototype: a path of an address may be "__proto__", which the server then does not know.
  const empty = () => Object.create(null) as Record<string, any>;
  const made = empty();
  for (const [path, text] of said) {
    let at = made;
    const names = path.split(".");
    for (const name of names.slice(0, -1)) at = at[name] = Object(at[name]) === at[name] ? at[name] : empty();
    at[names[names.length - 1]!] = valueOf(path, text);
  }
  made["cluster"] = clusterOf(question);
  return made;
}

// Options where all have one, else the scenario itself.
export function commandWords(question: Question, said: Said): string[] {
  const words = ["moesim", "compare"];
  const anchoring = Object.entries(anchoringOf(question)).flatMap(([name, text]) => [`--${name}`, text]);
  if (said.some(([path]) => !field(path)?.flag || field(path)?.kind === "boolean"))
    return [...words, JSON.stringify(scenarioOf(question, said)), ...anchoring];
  const cluster = clusterOf(question);
  for (const [path, text] of said) words.push(field(path)!.flag, text);
  return [...words, "--cluster", typeof cluster === "string" ? cluster : JSON.stringify(cluster), ...anchoring];
}
