// Evaluations beside each other: questions and models, wins and losses first, and the attempts at one question. Counts
// nothing but what the filters leave.

const METRIC_NAMES = { em: "EM", judged: "the judge", f1: "F1", gold_recall: "gold passages", searches: "searches", calls: "completions", tokens: "tokens" };

const RESULTS = {
  differ: ["models differ", (values) => new Set(values).size > 1],
  won: ["won against the first", (values) => values.slice(1).some((value) => value > values[0])],
  lost: ["lost against the first", (values) => values.slice(1).some((value) => value < values[0])],
  right: ["all right", (values) => values.every((value) => value === 1)],
  wrong: ["all wrong", (values) => values.every((value) => value === 0)],
};

/** What is shown, and sorted by; wins and losses are always by the metric. */
const shownBy = () => (Object.hasOwn(METRIC_NAMES, sought.by) ? sought.by : state.evaluated.metric);
const valueOf = (score, by) => (by === "tokens" ? score?.prompt_tokens + score?.completion_tokens || null : score?.[by]) ?? null;
const valuesOf = (row, by = state.evaluated.metric) => row.scores.map((score) => valueOf(score, by)); // of each model
const ofAttempt = (score) => (name) => (Object.hasOwn(METRIC_NAMES, name) ? [valueOf(score, name)] : null);

function soughtAttempts() {
  const by = shownBy();
  const words = wordsOf(sought.text);
  const ranges = Object.keys(METRIC_NAMES).filter((name) => sought[name]).map((name) => [name, within(sought[name])]); // of one attempt
  const found = state.rows.filter((row) => {
    const values = valuesOf(row);
    row.searched ??= [row.id, row.question, ...row.golden_answers, ...row.scores.map((score) => score?.answer ?? "")].join("\n").toLowerCase();
    const named = words.length && sought.deep ? hits?.ids.has(row.number) : row.scores.some((score) => score && fits(words, row.searched, ofAttempt(score)));
    const came = !sought.result || (!values.includes(null) && Object.hasOwn(RESULTS, sought.result) && RESULTS[sought.result][1](values));
    return named && came && (!sought.type || row.type === sought.type) && (!sought.hops || String(row.hops) === sought.hops) && row.scores.some((score) => ranges.every(([name, isWithin]) => isWithin(valueOf(score, name))));
  });
  const apart = (row) => d3.max(valuesOf(row, by)) - d3.min(valuesOf(row, by));
  const [name, turn] = sorting();
  const keys = { question: (row) => row.number, type: (row) => row.type ?? "", hops: (row) => row.hops ?? 0 };
  const key = Object.hasOwn(keys, name) ? keys[name] : (row) => valueOf(row.scores[Number(name)], by) ?? -1;
  return name ? found.sort((a, b) => turn * d3.ascending(key(a), key(b)) || a.number - b.number) : found.sort((a, b) => apart(b) - apart(a) || a.number - b.number);
}

/** The name of a group, which leads to its questions. */
function ofKind(name) {
  const [kind, ...value] = name.split(": ");
  return h("a", { href: link([], { type: "", hops: "", page: "", ...(value.length ? { [kind]: value.join(": ") } : {}) }) }, said(name));
}

/** How good each model is, and at what: by type and hops. */
function groupsTable({ groups, models }) {
  const isBest = ({ means }, one) => means.length > 1 && means.every((mean) => mean === one || mean.high < one.low);
  const cells = (group) => group.means.map((mean, i) => h("td", { class: `digits${isBest(group, mean) ? " best" : ""}`, "data-name": line(models[i], 40) }, wilson(mean),
    i ? h("span", { class: "faint" }, ` +${count(group.wins[i])} −${count(group.losses[i])}`) : null));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Models by kind of question" },
    h("table", { class: "numbers pair-table" },
      h("thead", {}, h("tr", {}, ["questions", "", ...models].map((name, i) => h("th", { scope: "col" }, said(name), i > 2 ? h("span", { class: "faint" }, " (won, lost against ", said(models[0]), ")") : null)))),
      h("tbody", {}, groups.map((group) => h("tr", {}, h("th", { scope: "row" }, ofKind(group.name)), h("td", { class: "digits", "data-name": "questions" }, count(group.questions)), cells(group))))));
}

function answerCell(score, metric, model) {
  if (score === null) return h("td", { class: "faint", "data-name": model }, "not asked");
  const value = score[metric];
  const sign = value === 1 ? h("span", { class: "chosen" }, "✓ ") : value === 0 ? h("span", { class: "rejected" }, "✗ ") : `${number(value)} `;
  const [by, other] = [shownBy(), valueOf(score, shownBy())];
  const shown = by === metric || other === null ? null : h("span", { class: "faint" }, ` ${METRIC_NAMES[by]} ${(["searches", "calls", "tokens"].includes(by) ? count : number)(other)}`);
  return h("td", { "data-name": model }, score.error ? [h("span", { class: "rejected" }, "failed: "), said(score.error)] : [sign, said(line(score.answer ?? "no answer", 60)), shown]);
}

function attemptsForm({ metric, models }) {
  const kinds = (name, any) => counted(state.rows.map((row) => row[name]).filter((value) => value !== null), (value) => `${name === "hops" ? "hops " : ""}${line(value, 40)}`, any, true);
  const text = h("input", { type: "search", id: "attempts-text", value: sought.text, placeholder: "Search question, answers, id  ( / )", "aria-label": "Search questions and answers", title: `"several words", one|another, -without, f1<0.5`, autocomplete: "off", on: { input: () => choose({ text: text.value }) } });
  const results = Object.entries(RESULTS).slice(models.length > 1 ? 0 : 3).map(([name, [label, fits]]) => [name, `${models.length > 1 ? label : label.slice(4)} (${count(state.rows.filter((row) => !valuesOf(row).includes(null) && fits(valuesOf(row))).length)})`]);
  const there = Object.keys(METRIC_NAMES).filter((name) => state.rows.some((row) => valuesOf(row, name).some((value) => value !== null)));
  return h("form", { class: "pairs-form", role: "search", "aria-label": "Questions", on: { submit: (event) => event.preventDefault() } },
    text, tick("deep", "in replies and passages"), choice("result", "Who was right", [["", "any result"], ...results]), choice("type", "Type of the question", kinds("type", "any type")), choice("hops", "Hops of the question", kinds("hops", "any hops")),
    choice("by", "Value that is shown and sorted by", there.map((name) => [name === metric ? "" : name, `by ${METRIC_NAMES[name]}`])),
    h("details", { open: there.some((name) => sought[name]) }, h("summary", {}, "Ranges"), there.map((name) => rangeOf(name, "any", METRIC_NAMES[name]))));
}

/** How an evaluation was made, as far as its files say so. */
function madeBy(i) {
  const { ["report.json"]: report, ["config.json"]: config, written } = state.evaluated.records[i];
  const { model, method, max_steps } = config?.decides_answers ?? {};
  const tokens = d3.sum(state.rows, (row) => valueOf(row.scores[i], "tokens"));
  const facts = [model && `model ${model}`, method, max_steps && `at most ${max_steps} steps`, written, tokens && plural(tokens, "token"), typeof report?.cost_usd === "number" ? dollars(report.cost_usd) : config && !report ? "not finished" : "cost not known"];
  return fact(said(state.evaluated.models[i]), said(facts.filter(Boolean).join(", ")));
}

function showAttemptsTable() {
  const { models, metric, groups, about } = state.evaluated;
  const leftOut = state.rows.length - groups[0].questions;
  if (!stage.querySelector("#attempts-table")) {
    stage.replaceChildren(h("h2", { tabindex: -1 }, `Evaluations, by ${METRIC_NAMES[metric]}`), h("dl", { class: "facts-of" }, models.map((_, i) => madeBy(i))), groupsTable(state.evaluated),
      leftOut ? h("p", { class: "verdict warning" }, `${plural(leftOut, "question")} of ${count(state.rows.length)} ${leftOut === 1 ? "has" : "have"} no score in some evaluation, and ${leftOut === 1 ? "is" : "are"} left out above.`) : "",
      h("p", { class: "note" }, `${models.length > 1 ? "Won, lost: questions on which a model is better, or worse, than the first. Bold: its interval lies above all others. " : ""}Intervals: Wilson, 95 %; reasonrag compare has paired intervals and tests.`),
      attemptsForm(state.evaluated), h("p", { class: "found", id: "attempts-found", role: "status" }), h("div", { class: "wide", id: "attempts-table", tabindex: 0, role: "region", "aria-label": "Table of questions" }), h("div", { id: "pairs-pages" }),
      rawJson(() => state.evaluated.records),
      h("details", {}, h("summary", {}, "About this page"), h("p", {}, "Keys: j / k: next / previous question; Esc: all questions; / searches."), about.map((text) => h("p", {}, visible(text)))));
  }
  const found = soughtAttempts();
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(sought.page) || 1));
  document.getElementById("attempts-found").textContent = `${count(found.length)} of ${plural(state.rows.length, "question")}${searchedLine()}`;
  const heads = [["question", "question"], ["type", "type"], ["hops", "hops"], ...models.map((name, i) => [String(i), line(name, 40)])];
  const sorted = heads.map(([key, text]) => sortable(key, text, (next) => choose({ sort: next }), { digits: key === "hops" }));
  const rows = found.slice((page - 1) * PAGE, page * PAGE).map((row) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: questionLink(row.link) }, said(line(row.question, 120))), h("div", { class: "faint" }, "gold: ", said(line(row.golden_answers.join(", "), 60)))), h("td", { "data-name": "type" }, said(line(row.type ?? "", 30))), h("td", { class: "digits", "data-name": "hops" }, row.hops ?? ""), row.scores.map((score, i) => answerCell(score, metric, line(models[i], 40)))));
  document.getElementById("attempts-table").replaceChildren(h("table", { class: "pair-table whole" }, h("thead", {}, h("tr", {}, sorted)), h("tbody", {}, rows)));
  document.getElementById("pairs-pages").replaceChildren(...[pager(pages, page, [])].filter(Boolean));
}

/** The attempts at a question, one beside another. */
function attemptsSection({ attempts }, row) {
  const { models, metric } = state.evaluated;
  const order = soughtAttempts();
  const place = order.indexOf(row);
  const at = (other) => (order[other] ? questionLink(order[other].link) : null);
  const titles = new Map(attempts.flatMap((each) => each?.steps ?? []).flatMap((step) => step.passages ?? []).map((each) => [each.id, each.title]));
  return [
    walk({ place, of: order.length, before: place > 0 ? at(place - 1) : null, after: at(place + 1), all: [[], "all questions"] }),
    h("h2", { tabindex: 0 }, said(row.question)),
    h("p", {}, h("span", { class: "faint" }, "Gold answers: "), said(row.golden_answers.join(", ") || "none known"), row.type ? h("span", { class: "faint" }, ` · ${line(row.type, 40)}`) : null, row.hops === null ? null : h("span", { class: "faint" }, ` · hops ${row.hops}`)),
    h("p", {}, h("button", { type: "button", on: { click: () => stage.querySelectorAll(".sides details").forEach((each) => { each.open = true; }) } }, "Unfold all")),
    h("div", { class: "sides" }, attempts.map((attempt, i) => h("section", { class: "side attempt", "aria-label": models[i] }, h("h3", {}, said(models[i])), attempt === null ? h("p", { class: "note" }, "not in this evaluation") : attemptParts(attempt, row.scores[i], metric, titles)))),
    rawJson(() => attempts),
  ];
}

function attemptParts(attempt, score, metric, titles) {
  const key = (name) => String(name).normalize("NFKC").toLowerCase().replace(/[_\s]+/gu, " ").trim(); // titles differ in these
  const ends = (step) => step === attempt.steps.at(-1) && step.content === attempt.answer;
  const actionOf = (step) => ({ think: ends(step) ? "answer" : "query", read: "evidence", conclude: "answer" })[step.action] ?? step.action; // as in trees
  const isNamed = (each, name) => !each.not_gold && [each.id, each.title].some((own) => key(own) === key(name));
  const gold = attempt.gold_passages ?? [];
  const lacking = gold.filter((name) => !(attempt.steps ?? []).some(({ passages }) => (passages ?? []).some((each) => isNamed(each, name))));
  const facts = [[METRIC_NAMES[metric], score[metric]], ["F1", metric === "f1" ? null : score.f1], ["gold passages found", score.gold_recall]].filter(([, value]) => value !== null && value !== undefined);
  return [
    h("p", { class: `verdict ${score[metric] === 1 ? "passed" : "error"}` }, score.error ? ["failed: ", said(score.error)] : ["Answer: ", said(line(score.answer ?? "none", 200))]),
    h("dl", { class: "facts-of" }, facts.map(([name, value]) => fact(name, number(value))), fact("searches", count(score.searches)), fact("completions", count(score.calls))),
    lacking.length ? h("p", { class: "warning" }, "gold passages not found: ", said(lacking.map((name) => titles.get(name) ?? name).join(", "))) : null,
    h("ol", { class: "steps" }, (attempt.steps ?? []).map((step) => h("li", {},
      h("p", {}, h("span", { class: "type" }, said(step.content ? actionOf(step) : "")), " ", step.content ? said(line(step.content, 200)) : h("span", { class: "rejected" }, `unreadable ${line(step.parse_error ?? "", 40)}`)),
      (step.passages ?? []).length ? h("details", {}, h("summary", {}, plural(step.passages.length, "passage")), h("ul", {}, step.passages.map((each) => h("li", {}, passageLine({ ...each, gold: gold.some((name) => isNamed(each, name)) }), h("span", { class: "faint" }, " id ", said(each.id)), each.text ? block(each.text) : null)))) : null,
      h("details", {}, h("summary", {}, "Reply"), block(step.response), step.observation ? [h("p", { class: "faint" }, "what the reader found"), block(step.observation)] : null)))),
  ];
}
