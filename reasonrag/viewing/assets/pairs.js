// The table of pairs: every pair of the set, or every candidate, as the address says. Decides which rows are shown and in
// what order; a page of them is in the document. Knows nothing of trees.

const PAGE = 100;
let columns = { id: [], dropped: [], unread: true };
let stale = true; // whether the list was told of pairs that may not be in the columns
let bringing = false;
let hits = null; // of a search in texts: the words, the pairs or questions that have them, and the questions that were searched

/** What a column is sorted by. */
const KEYS = {
  question: (i) => columns.question[i],
  depth: (i) => columns.layer[i],
  type: (i) => typesOf(i)[0],
  margin: (i) => columns.margin[i],
  confidence: (i) => columns.confidence[i],
  draws: (i) => columns.draws[i],
  gold: (i) => ["wrong", "tie", "unknown", "right"].indexOf(columns.gold[i]),
  reward: (i) => columns.rewards[i][0],
  length: (i) => Math.max(...lengthsOf(i)),
  status: (i) => columns.dropped[i] ?? "",
};

const GOLD = { right: "agrees", wrong: "disagrees", tie: "tie", unknown: "unknown" };

/** Ranges, by the values of which one has to lie in it: of both steps, where they are not of the pair. */
const RANGED = {
  confidence: (i) => [columns.confidence[i]],
  margin: (i) => [columns.margin[i]],
  draws: (i) => [columns.draws[i]],
  length: (i) => [KEYS.length(i)],
  chosen_length: (i) => [lengthsOf(i)[0]],
  rejected_length: (i) => [lengthsOf(i)[1]],
  reward: (i) => columns.rewards[i].filter((_, k) => !sought.side || typesOf(i)[k] === sought.side),
};
const ofPair = (i) => (name) => (Object.hasOwn(RANGED, name) && i !== undefined ? RANGED[name](i) : null);
const isRanged = (name) => sought[name] || (name === "reward" && sought.side);

/** Of the chosen and the rejected step. */
const typesOf = (i) => [columns.type[i], columns.rejected_type[i]].map((type) => type ?? "unreadable");
const lengthsOf = (i) => (state.overview.length_unit === "tokens" ? columns.tokens[i] : columns.words[i]); // of the replies

function textOf(i) {
  columns.searched ??= [];
  const row = state.byNumber.get(columns.question[i]);
  return (columns.searched[i] ??= [...row.ids, row.question, ...row.golden_answers, columns.id[i], columns.chosen[i], columns.rejected[i]].join("\n").toLowerCase());
}

/** Where the pairs stand, by question and identifier. */
const placesOf = () => (columns.places ??= new Map(columns.id.map((id, i) => [`${columns.question[i]} ${id}`, i])));

function ofStatus() {
  const { status } = sought;
  if (status === "kept" || status === "dropped") return (i) => (columns.dropped[i] === null) === (status === "kept");
  return (i) => status === "all" || columns.dropped[i] === status;
}

/** The tests that a row has to pass. */
function tests() {
  const { type, depth, gold, review, rows, text } = sought;
  const found = [ofStatus(), (i) => state.byNumber.has(columns.question[i])];
  if (type) found.push((i) => KEYS.type(i) === type);
  if (depth) found.push((i) => String(columns.layer[i]) === depth);
  if (gold) found.push((i) => columns.gold[i] === gold);
  if (review) found.push((i) => columns.review[i]);
  for (const name of Object.keys(RANGED).filter(isRanged)) {
    const isWithin = within(sought[name]);
    found.push((i) => RANGED[name](i).some(isWithin));
  }
  const named = new Set(rows.split(","));
  if (rows) found.push((i) => named.has(`${columns.part[i]}:${columns.row[i]}`));
  const words = wordsOf(text);
  if (words.length && sought.deep) found.push((i) => hits?.ids.has(`${columns.question[i]} ${columns.id[i]}`));
  else if (words.length) found.push((i) => fits(words, textOf(i), ofPair(i)));
  return found;
}

/** Places of the rows that pass, in order. */
function soughtPairs() {
  const wanted = tests();
  const found = d3.range(columns.id.length).filter((i) => wanted.every((test) => test(i)));
  const [name, turn] = sorting();
  if (!Object.hasOwn(KEYS, name)) return found;
  const key = KEYS[name];
  const known = (i) => key(i) !== null;
  return found.sort((a, b) => known(b) - known(a) || turn * d3.ascending(key(a), key(b)) || a - b);
}

function pairAddress(i) {
  return questionLink(state.byNumber.get(columns.question[i]).link, "pair", columns.id[i]);
}

/** Where a pair stands among those that are sought, and the addresses of those beside it. */
function placeOf(question, id) {
  const order = soughtPairs();
  const place = order.findIndex((i) => columns.question[i] === question && columns.id[i] === id);
  const at = (other) => (order[other] === undefined ? null : pairAddress(order[other]));
  return { place, of: order.length, before: place > 0 ? at(place - 1) : null, after: at(place + 1) };
}

/** Brings the columns, which the list does not wait for, and draws again what shows them. */
async function bringPairs() {
  if (!stale || bringing) return;
  const began = Date.now();
  [stale, bringing] = [false, true];
  columns = await source.pairs().catch((error) => ({ ...columns, error: error.message }));
  if (state.route.kind === "pairs" && stage.querySelector(".pairs-form")) refillForm();
  if (hits) hits.done = false; // there may be questions that were not searched
  searchTexts();
  const had = document.activeElement.closest("#pairs-table tr")?.dataset.pair;
  showPairs();
  if (had) stage.querySelector(`#pairs-table tr[data-pair="${CSS.escape(had)}"] a`)?.focus({ preventScroll: true });
  walkAgain();
  setTimeout(() => {
    bringing = false;
    if (pairsAreShown()) bringPairs();
  }, 5 * (Date.now() - began)); // the more there are, the longer an answer takes
}

const pairsAreShown = () => state.route.kind === "pairs" || state.route.what === "pair";

// -- search in texts -----------------------------------------------------------------------------------------

/** Reads all questions for the words of a search, those too that a served list still brings; the table is shown again
 * now and then. */
async function searchTexts() {
  const sentence = wordsOf(sought.text);
  const name = JSON.stringify(sentence);
  if (!sought.deep || !sentence.length || (!state.evaluated && columns.unread)) return;
  if (hits?.name !== name) hits = { name, ids: new Set(), read: new Set(), unread: 0, reading: false, done: false };
  const mine = hits;
  if (mine.reading || mine.done) return;
  mine.reading = true;
  let shownAt = Date.now();
  for (let row = unsearched(mine); row; row = unsearched(mine)) {
    mine.read.add(row.number);
    const view = await source.question(row.number).catch(() => null);
    if (hits !== mine) return; // others are sought now
    if (!view) mine.unread += 1;
    const known = [...row.ids, row.question, ...row.golden_answers];
    for (const [key, texts] of view ? textsIn(view, row) : []) {
      const [text, values] = [[...known, ...texts].join("\n").toLowerCase(), view.attempts ? row.scores.filter(Boolean).map(ofAttempt) : [ofPair(placesOf().get(key))]];
      if (values.some((valuesOf) => fits(sentence, text, valuesOf))) mine.ids.add(key);
    }
    if (Date.now() - shownAt > 500) {
      shownAt = Date.now();
      showFound();
    }
  }
  mine.reading = false;
  mine.done = state.complete;
  showFound();
  walkAgain();
}

/** The ways from an open pair to those beside it, anew. */
function walkAgain() {
  if (state.view && state.route.what === "pair") detail.querySelector(".walk")?.replaceWith(walk(placeOf(state.view.number, state.route.which[0])));
}

/** The texts of each pair of a question, or of all attempts at it. */
function textsIn(view, row) {
  if (view.attempts) return [[row.number, view.attempts.flatMap((each) => [each?.answer, ...(each?.steps ?? []).flatMap((step) => [step.response, step.observation, ...(step.passages ?? []).flatMap(({ title, text }) => [title, text])])])]];
  return view.pairs.map((pair) => {
    const steps = [pair.chosen, pair.rejected].map((id) => stepOf(view, pair, id));
    return [`${row.number} ${pair.id}`, [pair.id, ...steps.flatMap((step) => [...spelled(view, step), step.response, step.observation])]];
  });
}

function unsearched(mine) {
  return state.rows.find((row) => row && isHeld(row.number) && !mine.read.has(row.number));
}

// -- drawing -------------------------------------------------------------------------------------------------

const showFound = () => (state.evaluated ? state.route.kind === "question" || showAttemptsTable() : showPairs());

/** Chooses among pairs, or among the questions of evaluations. */
function choose(changes) {
  history["text" in changes ? "replaceState" : "pushState"](null, "", link(state.evaluated ? [] : ["pairs"], { page: "", ...changes }));
  routeOf(location.hash);
  if ("status" in changes) refillForm();
  searchTexts();
  showFound();
}

const fieldId = (name) => `${state.evaluated ? "attempts" : "pairs"}-${name}`;

function tick(name, label) {
  return h("label", { class: "tick" }, h("input", { type: "checkbox", id: fieldId(name), checked: sought[name] === "1", on: { change: (event) => choose({ [name]: event.target.checked ? "1" : "" }) } }), ` ${label}`);
}

function choice(name, label, entries) {
  const select = h("select", { id: fieldId(name), "aria-label": label, on: { change: () => choose({ [name]: select.value }) } },
    entries.map(([value, text]) => h("option", { value, selected: value === sought[name] }, text)));
  return select;
}

function rangeOf(name, step, label = words(name)) {
  const [low, high = ""] = sought[name].replace("<", "").split("..");
  const end = (value, what) => h("input", { type: "number", step, value, "aria-label": `${label} ${what}`, placeholder: what, on: { change: () => {
    const ends = [...field.querySelectorAll("input")].map((each) => each.value);
    choose({ [name]: ends.some(Boolean) ? ends.join("..") : "" });
  } } });
  const field = h("span", { class: "range" }, `${label} `, end(low, "from"), " ", end(high, "to"));
  return field;
}

/** Choices by what there is of it, the most frequent first where `order` is not given. */
function counted(values, name, any, order = null) {
  const found = d3.rollups(values, (all) => all.length, (value) => value).sort((a, b) => (order ? d3.ascending(a[0], b[0]) : b[1] - a[1]));
  return [["", any], ...found.map(([value, many]) => [String(value), `${name(value)} (${count(many)})`])];
}

function pairsForm() {
  const among = d3.range(columns.id.length).filter(ofStatus());
  const dropped = columns.dropped.filter(Boolean);
  const reasons = counted(dropped, words, "").slice(1);
  let waiting = 0;
  const text = h("input", { type: "search", id: "pairs-text", value: sought.text, placeholder: "Search question, answer, id, what differs  ( / )", "aria-label": "Search pairs", title: `"several words", one|another, -without, confidence<0.7`, autocomplete: "off",
    on: { input: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => state.route.kind === "pairs" && choose({ text: text.value }), 120);
    } } });
  return h("form", { class: "pairs-form", role: "search", "aria-label": "Pairs", on: { submit: (event) => event.preventDefault() } },
    text,
    tick("deep", "in prompts, replies and passages"),
    choice("status", "Kept or dropped", [["kept", `kept (${count(columns.id.length - dropped.length)})`], ["all", "all candidates"], ["dropped", `dropped (${count(dropped.length)})`], ...reasons.map(([value, said]) => [value, `dropped: ${said}`])]),
    choice("type", "Action type of the chosen step", counted(among.map(KEYS.type), (value) => TYPES[value]?.name ?? value, "any type")),
    choice("depth", "Depth of the state", counted(among.map(KEYS.depth), (value) => `depth ${value}`, "any depth", true)),
    choice("gold", "Gold passages against the label", counted(among.map((i) => columns.gold[i]), (value) => `gold passages: ${GOLD[value]}`, "any gold passages")),
    tick("review", "needs review"),
    h("details", { open: Object.keys(RANGED).some(isRanged) },
      h("summary", {}, "Ranges"),
      Object.keys(RANGED).map((name) => rangeOf(name, name.endsWith("length") ? 10 : name === "draws" ? 1 : 0.05)),
      choice("side", "Type of the step with this reward", [["", "of any step"], ...["query", "evidence", "answer"].map((type) => [type, `of ${type} steps`])])),
    h("button", { type: "button", id: "pairs-clear", on: { click: () => {
      location.hash = pairsLink({ sort: sought.sort });
      stage.replaceChildren();
      go();
    } } }, "Clear"));
}

/** The choices anew, as there is more to choose from; what a reader is at stays. */
function refillForm() {
  const fresh = pairsForm();
  for (const select of stage.querySelectorAll(".pairs-form select")) if (select !== document.activeElement) select.replaceWith(fresh.querySelector(`#${select.id}`));
}

const HEADS = { question: "question", depth: "depth", type: "type", chosen: "✓ chosen, from where they differ", rejected: "✗ rejected", margin: "margin", confidence: "confidence", draws: "draws", gold: "gold", reward: "rewards", length: "lengths", status: "status" };
const HINTS = { draws: "effective sample size of the side with less", gold: "whether gold passages agree with the label", reward: "of both steps; sorted by the chosen one's", length: "of both replies; sorted by the longer one's" };

/** A head that sorts by its column: upwards, downwards, not at all. */
function sortable(name, text, choose, { title = null, digits = false } = {}) {
  const now = sought.sort === name ? "ascending" : sought.sort === `-${name}` ? "descending" : null;
  const next = { ascending: `-${name}`, descending: "" }[now] ?? name;
  const arrow = { ascending: " ▲", descending: " ▼" }[now] ?? "";
  return h("th", { scope: "col", class: digits ? "digits" : null, "aria-sort": now }, h("button", { type: "button", title, "data-sort": name, on: { click: () => {
    choose(next);
    stage.querySelector(`[data-sort="${name}"]`)?.focus();
  } } }, text, arrow));
}

function headOf(name) {
  return Object.hasOwn(KEYS, name) ? sortable(name, HEADS[name], (sort) => choose({ sort }), { title: HINTS[name] }) : h("th", { scope: "col" }, HEADS[name]);
}

function rowOf(i) {
  const row = state.byNumber.get(columns.question[i]);
  const marks = [columns.review[i] ? h("span", { class: "warning" }, " ⚠ review") : null, columns.tags[i].includes("one_draw") ? h("span", { class: "faint" }, " one draw") : null];
  const digits = (name, value) => h("td", { class: "digits", "data-name": name }, value);
  return h("tr", { "data-pair": columns.id[i] },
    h("th", { scope: "row" }, h("a", { href: pairAddress(i) }, said(line(row.question, 70)))),
    digits("depth", columns.layer[i]),
    h("td", { "data-name": "type" }, KEYS.type(i)),
    h("td", { "data-name": "chosen" }, said(line(columns.chosen[i], 90))),
    h("td", { "data-name": "rejected" }, said(line(columns.rejected[i], 90))),
    digits("margin", number(columns.margin[i])),
    digits("confidence", number(columns.confidence[i])),
    digits("draws", number(columns.draws[i])),
    h("td", { "data-name": "gold" }, GOLD[columns.gold[i]]),
    digits("rewards", columns.rewards[i].map(number).join(" / ")),
    digits("lengths", lengthsOf(i).map(count).join(" / ")),
    h("td", { "data-name": "status" }, columns.dropped[i] ? words(columns.dropped[i]) : columns.part[i] ? `kept, ${columns.part[i]} ${columns.row[i]}` : "kept", marks));
}

function pager(pages, page, path = ["pairs"]) {
  const to = (number) => h("a", { href: link(path, { page: number > 1 ? String(number) : "" }), "aria-current": number === page ? "page" : null }, String(number));
  const shown = [...new Set([1, page - 1, page, page + 1, pages])].filter((each) => each >= 1 && each <= pages);
  return pages > 1 ? h("nav", { class: "tabs", "aria-label": "Pages of the table" }, shown.map(to)) : null;
}

/** What is said of a search in texts. */
function searchedLine() {
  if (!sought.deep || !hits || !wordsOf(sought.text).length) return "";
  const unread = hits.unread ? `; ${plural(hits.unread, "question")} could not be read` : "";
  const sample = held === null ? "" : `; only the ${plural(held.size, "question")} in this page were searched`;
  return hits.done ? `${unread}${sample}` : `; ${plural(hits.read.size, "question")} searched so far${unread}`;
}

/** The table in the page; its form stays while a reader types. */
function showPairs() {
  if (state.route.kind !== "pairs") return;
  if (!stage.querySelector(".pairs-form")) {
    stage.replaceChildren(h("h2", { tabindex: -1 }, "Pairs"), pairsForm(), h("p", { class: "found", id: "pairs-found", role: "status" }), h("div", { class: "wide", id: "pairs-table", tabindex: 0, role: "region", "aria-label": "Table of pairs" }), h("div", { id: "pairs-pages" }));
  }
  const found = soughtPairs();
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(sought.page) || 1));
  const reading = columns.error ? `; the pairs could not be read: ${columns.error}` : columns.unread ? ", reading…" : state.complete ? "" : `, ${Math.round(100 * state.read)} % read`;
  document.getElementById("pairs-found").textContent = `${count(found.length)} of ${plural(columns.id.length, "candidate")}${reading}${searchedLine()}`;
  const rows = found.slice((page - 1) * PAGE, page * PAGE);
  document.getElementById("pairs-table").replaceChildren(h("table", { class: "pair-table whole" }, h("thead", {}, h("tr", {}, Object.keys(HEADS).map(headOf))), h("tbody", {}, rows.map(rowOf))));
  const raw = () => rows.map((i) => Object.fromEntries(Object.entries(columns).filter(([, of]) => Array.isArray(of)).map(([name, of]) => [name, of[i]])));
  document.getElementById("pairs-pages").replaceChildren(...[pager(pages, page), rows.length ? rawJson(raw) : null].filter(Boolean));
}
