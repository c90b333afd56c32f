// Evaluations beside each other: questions and models, wins and losses first, and the attempts at one question. Counts
// nothing but what the filters leave.

const METRIC_NAMES = { em: "EM", judged: "the judge", f1: "F1" };

const RESULTS = {
  differ: ["models differ", (values) => new Set(values).size > 1],
  won: ["won against the first", (values) => values.slice(1).some((value) => value > values[0])],
  lost: ["lost against the first", (values) => values.slice(1).some((value) => value < values[0])],
  right: ["all right", (values) => values.every((value) => value === 1)],
  wrong: ["all wrong", (values) => values.every((value) => value === 0)],
};

/** What decides wins, of each model; null where it has none. */
function valuesOf(row) {
  return row.scores.map((score) => score?.[state.evaluated.metric] ?? null);
}

function soughtAttempts() {
  const { metric } = state.evaluated;
  const words = wordsOf(sought.text);
  const found = state.rows.filter((row) => {
    const values = valuesOf(row);
    row.searched ??= [row.id, row.question, ...row.golden_answers, ...row.scores.map((score) => score?.answer ?? "")].join("\n").toLowerCase();
    const fits = !sought.result || (!values.includes(null) && Object.hasOwn(RESULTS, sought.result) && RESULTS[sought.result][1](values));
    return fits && (!sought.type || row.type === sought.type) && (!sought.hops || String(row.hops) === sought.hops) && words.every((word) => row.searched.includes(word));
  });
  const apart = (row) => d3.max(valuesOf(row)) - d3.min(valuesOf(row));
  const name = sought.sort.replace(/^-/u, "");
  const turn = sought.sort.startsWith("-") ? -1 : 1;
  const keys = { question: (row) => row.number, type: (row) => row.type ?? "", hops: (row) => row.hops ?? 0 };
  const key = Object.hasOwn(keys, name) ? keys[name] : (row) => row.scores[Number(name)]?.[metric] ?? -1;
  return name ? found.sort((a, b) => turn * d3.ascending(key(a), key(b)) || a.number - b.number) : found.sort((a, b) => apart(b) - apart(a) || a.number - b.number);
}

function chooseAttempts(changes) {
  history.replaceState(null, "", link([], { page: "", ...changes }));
  routeOf(location.hash);
  showAttemptsTable();
}

/** The name of a group, which leads to its questions. */
function ofKind(name) {
  const [kind, ...value] = name.split(": ");
  return value.length ? h("a", { href: link([], { type: "", hops: "", page: "", [kind]: value.join(": ") }) }, said(name)) : said(name);
}

/** How good each model is, and at what: by type and hops. */
function groupsTable({ groups, models }) {
  const best = (group) => d3.max(group.means, (mean) => mean.share);
  const cells = (group) => group.means.map((mean, i) => h("td", { class: `digits${mean.share === best(group) ? " best" : ""}` }, wilson(mean),
    i ? h("span", { class: "faint" }, ` +${count(group.wins[i])} −${count(group.losses[i])}`) : null));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Models by kind of question" },
    h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, ["questions", "", ...models].map((name, i) => h("th", { scope: "col" }, said(name), i > 2 ? h("span", { class: "faint" }, " (won, lost against ", said(models[0]), ")") : null)))),
      h("tbody", {}, groups.map((group) => h("tr", {}, h("th", { scope: "row" }, ofKind(group.name)), h("td", {}, count(group.questions)), cells(group))))));
}

function answerCell(score, metric, model) {
  if (score === null) return h("td", { class: "faint", "data-name": model }, "not asked");
  const value = score[metric];
  const sign = value === 1 ? h("span", { class: "chosen" }, "✓ ") : value === 0 ? h("span", { class: "rejected" }, "✗ ") : `${number(value)} `;
  return h("td", { "data-name": model }, score.error ? [h("span", { class: "rejected" }, "failed: "), said(score.error)] : [sign, said(line(score.answer ?? "no answer", 60))]);
}

function attemptsForm() {
  const pick = (name, label, entries) => {
    const select = h("select", { id: `attempts-${name}`, "aria-label": label, on: { change: () => chooseAttempts({ [name]: select.value }) } },
      entries.map(([value, text]) => h("option", { value, selected: value === sought[name] }, text)));
    return select;
  };
  const kinds = (name, any) => counted(state.rows.map((row) => row[name]).filter((value) => value !== null), (value) => `${name === "hops" ? "hops " : ""}${line(value, 40)}`, any, true);
  const text = h("input", { type: "search", id: "attempts-text", value: sought.text, placeholder: "Search question, answers, id  ( / )", "aria-label": "Search questions and answers", autocomplete: "off", on: { input: () => chooseAttempts({ text: text.value }) } });
  const results = Object.entries(RESULTS).map(([name, [label, fits]]) => [name, `${label} (${count(state.rows.filter((row) => !valuesOf(row).includes(null) && fits(valuesOf(row))).length)})`]);
  return h("form", { class: "pairs-form", role: "search", "aria-label": "Questions", on: { submit: (event) => event.preventDefault() } },
    text, pick("result", "Who was right", [["", "any result"], ...results]), pick("type", "Type of the question", kinds("type", "any type")), pick("hops", "Hops of the question", kinds("hops", "any hops")));
}

function showAttemptsTable() {
  const { models, metric, groups, about } = state.evaluated;
  if (!stage.querySelector("#attempts-table")) {
    stage.replaceChildren(h("h2", { tabindex: -1 }, `Evaluations, by ${METRIC_NAMES[metric]}`), groupsTable(state.evaluated),
      h("p", { class: "note" }, `${models.length > 1 ? "Won, lost: questions on which a model is better, or worse, than the first. " : ""}Intervals: Wilson, 95 %; reasonrag compare has paired intervals and tests.`),
      attemptsForm(), h("p", { class: "found", id: "attempts-found", role: "status" }), h("div", { class: "wide", id: "attempts-table", tabindex: 0, role: "region", "aria-label": "Table of questions" }), h("div", { id: "pairs-pages" }),
      h("details", {}, h("summary", {}, "About this page"), about.map((text) => h("p", {}, visible(text)))));
  }
  const found = soughtAttempts();
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(sought.page) || 1));
  document.getElementById("attempts-found").textContent = `${count(found.length)} of ${plural(state.rows.length, "question")}`;
  const heads = [["question", "question"], ["type", "type"], ["hops", "hops"], ...models.map((name, i) => [String(i), line(name, 40)])];
  const sorted = heads.map(([key, text]) => sortable(key, text, (next) => chooseAttempts({ sort: next })));
  const rows = found.slice((page - 1) * PAGE, page * PAGE).map((row) => h("tr", {},
    h("th", { scope: "row" }, h("a", { href: questionLink(row.link) }, said(line(row.question, 120))), h("span", { class: "faint" }, " gold: ", said(line(row.golden_answers.join(", "), 60)))), h("td", { "data-name": "type" }, said(line(row.type ?? "", 30))), h("td", { class: "digits", "data-name": "hops" }, row.hops ?? ""), row.scores.map((score, i) => answerCell(score, metric, line(models[i], 40)))));
  document.getElementById("attempts-table").replaceChildren(h("table", { class: "pair-table whole" }, h("thead", {}, h("tr", {}, sorted)), h("tbody", {}, rows)));
  document.getElementById("pairs-pages").replaceChildren(...[pager(pages, page, [])].filter(Boolean));
}

/** The attempts at a question, one beside another. */
function attemptsSection({ attempts }, row) {
  const { models, metric } = state.evaluated;
  const order = soughtAttempts();
  const place = order.indexOf(row);
  const at = (other) => (order[other] ? questionLink(order[other].link) : null);
  return [
    walk({ place, of: order.length, before: place > 0 ? at(place - 1) : null, after: at(place + 1), all: [[], "all questions"] }),
    h("h2", { tabindex: 0 }, said(row.question)),
    h("p", {}, h("span", { class: "faint" }, "Gold answers: "), said(row.golden_answers.join(", ") || "none known"), row.type ? h("span", { class: "faint" }, ` · ${line(row.type, 40)}`) : null, row.hops === null ? null : h("span", { class: "faint" }, ` · hops ${row.hops}`)),
    h("div", { class: "sides" }, attempts.map((attempt, i) => h("section", { class: "side attempt", "aria-label": models[i] }, h("h3", {}, said(models[i])), attempt === null ? h("p", { class: "note" }, "not in this evaluation") : attemptParts(attempt, row.scores[i], metric)))),
    rawJson(() => attempts),
  ];
}

function attemptParts(attempt, score, metric) {
  const facts = [[METRIC_NAMES[metric], score[metric]], ["F1", metric === "f1" ? null : score.f1], ["gold passages found", score.gold_recall]].filter(([, value]) => value !== null && value !== undefined);
  return [
    h("p", { class: `verdict ${score[metric] === 1 ? "passed" : "error"}` }, score.error ? ["failed: ", said(score.error)] : ["Answer: ", said(line(score.answer ?? "none", 200))]),
    h("dl", { class: "facts-of" }, facts.map(([name, value]) => fact(name, number(value))), fact("searches", count(score.searches)), fact("completions", count(score.calls))),
    h("ol", { class: "steps" }, (attempt.steps ?? []).map((step) => h("li", {},
      h("p", {}, h("span", { class: "type" }, said(step.action)), " ", step.content ? said(line(step.content, 200)) : h("span", { class: "rejected" }, `unreadable ${line(step.parse_error ?? "", 40)}`)),
      (step.passages ?? []).length ? h("details", {}, h("summary", {}, plural(step.passages.length, "passage")), h("ul", {}, step.passages.map((each) => h("li", {}, said(line(each.title || each.id, 120)))))) : null,
      h("details", {}, h("summary", {}, "Reply"), block(step.response), step.observation ? [h("p", { class: "faint" }, "what the reader found"), block(step.observation)] : null)))),
  ];
}
