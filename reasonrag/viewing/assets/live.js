// How far a run is, in a line at the top of a served page; and the list of a folder of several. Counts nothing itself.

const RUN_STATES = { running: "● running", ended: "ended", stopped: "stopped", killed: "stopped or killed: its lock is free, and it did not come to its end; the same command goes on" };
let wasRunning = false;

/** wrong: why it is not known any more. An end is told to those who saw the run go on. */
function showLive({ run, wrong }) {
  wasRunning ||= run?.state === "running";
  const facts = wrong ? [wrong] : Object.hasOwn(RUN_STATES, run?.state ?? "") && (run.state !== "ended" || wasRunning) ? liveFacts(run, state.overview) : [];
  const place = document.getElementById("live");
  place.hidden = !facts.length;
  place.classList.toggle("warning", Boolean(wrong) || ["stopped", "killed"].includes(run?.state));
  place.replaceChildren(...facts.filter(Boolean).flatMap((fact, i) => [i ? " · " : "", typeof fact === "string" ? said(fact) : fact]));
}

function liveFacts(run, o) {
  const failed = o.ends.failed ?? 0;
  const cap = run.max_cost === null ? "" : ` of at most ${dollars(run.max_cost)}`;
  const warnings = o.warnings.length ? h("a", { href: "#/", class: "warning" }, `⚠ ${plural(o.warnings.length, "warning")}`) : "";
  const [seconds, questions, calls] = run.since ?? [0, 0, 0];
  const pace = seconds && o.questions > questions ? (60 * (o.questions - questions)) / seconds : 0; // a minute
  const left = run.asked - o.questions;
  return [
    RUN_STATES[run.state] + (run.why ? `: ${run.why}` : ""),
    `${count(o.questions - failed)} of ${run.asked === null ? "all questions" : plural(run.asked, "question")}`,
    failed ? `${count(failed)} failed` : "",
    o.usage ? `${dollars(o.usage.cost_usd)}${cap}` : "",
    o.usage ? plural(o.usage.calls, "completion") : "",
    pace && o.usage ? `${count((60 * (o.usage.calls - calls)) / seconds)} a minute` : "",
    pace && left > 0 ? `about ${plural(Math.ceil(left / pace), "minute")} left` : "",
    warnings,
  ];
}

// -- a folder ------------------------------------------------------------------------------------------------

const moment = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "short" });
const ENTRY = { name: "name", kind: "kind", state: "state", questions: "done", EM: "em", pairs: "pairs", cost: "cost", changed: "changed" };

function entryRow(row) {
  const digits = (name, value) => h("td", { class: "digits", "data-name": name }, value);
  const of = row.asked && row.asked !== row.done ? ` of ${count(row.asked)}` : "";
  return h("tr", {},
    h("th", { scope: "row" }, h("a", { href: `${encodeURIComponent(row.name)}/` }, said(line(row.name, 80)))),
    h("td", { "data-name": "kind" }, row.kind),
    h("td", { "data-name": "state", class: row.why || row.state === "killed" ? "warning" : null, title: row.why ? visible(row.why) : null }, row.state === "unknown" && !row.why ? "" : row.state ?? ""),
    digits("questions", [`${count(row.done)}${of}`, row.failed ? h("span", { class: "faint" }, ` ${count(row.failed)} failed`) : null]),
    [["EM", Number.isFinite(row.em) ? percent(row.em, 1) : "–"], ["pairs", count(row.pairs)], ["cost", dollars(row.cost)]].map((cell) => digits(...cell)),
    h("td", { "data-name": "changed" }, row.changed ? moment.format(new Date(1000 * row.changed)) : ""));
}

/** What lies in a folder, as the address orders it, else the latest first; drawn again where there is news. */
function showFolder() {
  const { path, rows, found } = state.folder;
  const [name, way] = sorting();
  const [field, turn] = Object.hasOwn(ENTRY, name) ? [ENTRY[name], way] : ["changed", -1];
  const ordered = rows.toSorted((a, b) => turn * d3.ascending(a[field] ?? "", b[field] ?? ""));
  const heads = Object.keys(ENTRY).map((each) => sortable(each, each, (sort) => {
    history.pushState(null, "", link([], { sort }));
    go();
  }, { digits: ["questions", "EM", "pairs", "cost"].includes(each) }));
  const had = stage.contains(document.activeElement) ? [...stage.querySelectorAll("a, button")].indexOf(document.activeElement) : -1;
  stage.replaceChildren(h("h2", { tabindex: -1 }, said(path)),
    h("p", { class: "found" }, found > rows.length ? `The first ${count(rows.length)} of ${count(found)} runs, data sets and evaluations; serve a folder of fewer to see the others.` : plural(found, "run, data set or evaluation", "runs, data sets and evaluations"),
      rows.filter((row) => row.kind === "evaluation").length > 1 ? h("span", {}, "evaluations beside each other: ", h("code", {}, "reasonrag view EVAL EVAL")) : null),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Runs, data sets and evaluations" }, h("table", { class: "pair-table whole" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, ordered.map(entryRow)))));
  stage.querySelectorAll("a, button")[had]?.focus();
}
