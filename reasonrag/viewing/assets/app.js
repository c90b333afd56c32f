// Puts the page together: what the address says is what is shown; keys, and what happens while data is on its way.

const state = { rows: [], byId: new Map(), byNumber: new Map(), complete: false, read: 0, current: null, overview: null, about: [], view: null, evaluated: null, trained: null, drawn: null, filled: "", listed: "", folder: null, behind: false, drawnAt: 0, pending: null, route: routeNamed(location.hash) };
const stage = document.getElementById("stage");
const detail = document.getElementById("detail");
const scrolled = new Map(); // how far the page was scrolled, by address, for those who come back
const scroller = () => (matchMedia("(min-width: 48.01rem)").matches ? stage : document.scrollingElement);
history.scrollRestoration = "manual";

function routeOf(address) {
  if (!address || address.startsWith("#/")) state.route = routeNamed(address);
  return state.route; // anything else is a place in the page
}

/** Shows what the address names. again: also what is drawn already. */
async function go(again = true) {
  const route = routeOf(location.hash);
  const stays = route.kind === "overview" && document.body.dataset.route === route.kind && scroller() === stage; // the overview, where only the list beside it changes
  document.body.dataset.route = route.kind;
  if (state.trained) return stage.replaceChildren(...flat(curvesSection(state.trained)));
  if (state.folder) return showFolder();
  if (state.evaluated) return showEvaluations(route);
  listAgain();
  for (const each of document.querySelectorAll(".head nav a")) {
    each.hidden = each.dataset.kind === "judge" && !(source === servedSource && state.overview?.kind === "data set");
    if (each.dataset.kind === route.kind) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (route.what === "pair") searchTexts();
  if (pairsAreShown()) bringPairs();
  const row = route.kind === "question" ? state.byId.get(route.id) : null;
  if (state.pending !== row?.number) state.pending = null; // the reader has gone on
  if (route.kind !== "question") {
    state.view = null;
    select(null);
    closeDetail();
    if (state.overview && route.kind === "overview" && (again || !stays)) stage.replaceChildren(...flat(overviewSection(state.overview, state.about)));
    if (state.overview && route.kind === "pairs") {
      stage.replaceChildren(); // its form says what the address says
      searchTexts();
      showPairs();
    }
    if (!stays) scroller().scrollTop = scrolled.get(location.hash) ?? 0;
    if (state.overview && route.kind === "judge") {
      if (source !== servedSource) return stage.replaceChildren(h("p", { class: "note" }, "Judgements are taken by reasonrag view DIR --serve."));
      showJudging().catch((error) => state.route.kind === "judge" && stage.replaceChildren(h("p", { class: "verdict error" }, said(error.message))));
    }
    document.title = `${route.kind === "pairs" ? "Pairs – " : ""}${document.body.dataset.title}`;
    return;
  }
  if (!row) {
    stage.replaceChildren(h("p", { class: "note" }, state.complete ? `There is no question ${line(route.id, 80)} here.` : "Still reading…"));
    closeDetail();
  } else if (state.view?.number === row.number) {
    if (state.current !== row.number) select(row.number);
    showQuestion(route, row);
  } else if (state.pending !== row.number) {
    await fetchQuestion(row); // else its answer is on its way
  }
}

/** Shows the table of evaluations, or the attempts at a question. */
async function showEvaluations(route) {
  const row = route.kind === "question" ? state.byId.get(route.id) : null;
  stage.replaceChildren();
  document.title = document.body.dataset.title;
  const searched = searchTexts();
  if (!row) {
    showAttemptsTable();
    scroller().scrollTop = scrolled.get(location.hash) ?? 0;
    return;
  }
  await searched; // what stands beside this question
  const found = await source.question(row.number).catch((error) => ({ wrong: error.message }));
  if (routeOf(location.hash).id !== route.id) return; // the reader has gone on
  if (found?.wrong) return stage.replaceChildren(h("p", { class: "verdict error" }, "The attempts at this question could not be read: ", said(found.wrong)));
  stage.replaceChildren(...flat(found ? attemptsSection(found, row) : [h("a", { href: link([]) }, "← all questions"), h("h2", { tabindex: -1 }, said(row.question)), h("p", { class: "note" }, "Its attempts are not in this page: give reasonrag view a larger --max-mb.")]));
  markWords(stage);
}

/** Fetches a question and shows it, unless the reader has gone on meanwhile. */
async function fetchQuestion(row) {
  state.pending = row.number;
  select(row.number);
  stage.replaceChildren(h("p", { class: "note", role: "status" }, "Reading…"));
  closeDetail();
  const found = await source.question(row.number).catch((error) => ({ wrong: error.message }));
  if (state.pending !== row.number) return;
  state.pending = null;
  const route = routeOf(location.hash);
  if (route.kind !== "question" || state.byId.get(route.id)?.number !== row.number) return;
  state.view = found && !found.wrong ? { ...found, link: row.link } : null;
  if (found?.wrong) stage.replaceChildren(h("p", { class: "verdict error" }, "This question could not be read: ", said(found.wrong)));
  else if (found) showQuestion(route, row);
  else stage.replaceChildren(...flat(onlyInTheList(row, route)));
}

function flat(nodes) {
  return [nodes].flat(Infinity).filter(Boolean);
}

/** Shows a question whose tree is not in the page. */
function onlyInTheList(row, route) {
  return [
    h("a", { class: "back", href: link([]) }, "← all questions"),
    route.what === "pair" ? walk(placeOf(row.number, route.which[0])) : null,
    h("h2", { tabindex: -1 }, said(row.question)),
    h("p", { class: "note" }, "This page embeds a sample of the trees, and not this one.", ...(state.overview.path ? [" Show all of them with ", h("code", {}, "reasonrag view --serve"), ", or this one with ", h("code", {}, visible(`reasonrag show ${state.overview.path} ${row.id}`)), "."] : [])),
  ];
}

function showQuestion(route, row) {
  const view = state.view;
  const treeOf = { tree: () => Number(route.which[0]), step: () => Number(route.which[0]), pair: () => pairOf(view, route)?.tree };
  const wanted = Object.hasOwn(treeOf, route.what ?? "") ? treeOf[route.what]() : 0;
  const tree = view.trees[wanted] ? wanted : 0;
  const shown = stage.querySelector("[data-shown]")?.dataset.shown;
  const name = JSON.stringify([view.number, tree]);
  if (shown !== name) {
    const section = h("div", { "data-shown": name }, flat(questionSection(view, row, tree)));
    stage.replaceChildren(section);
    scroller().scrollTop = 0;
  }
  document.title = `${line(view.question, 60)} – ${document.body.dataset.title}`;
  showDetail(route, view, tree);
}

function pairOf(view, route) {
  const pair = view.pairs.find((each) => each.id === route.which[0]);
  return pair && { ...pair, tree: view.states[pair.state].tree };
}

/** The pair or step that an address opens. */
function openedBy(route, view, tree) {
  const pair = route.what === "pair" ? pairOf(view, route) : null;
  return [pair, route.what === "step" ? view.trees[tree]?.steps[Number(route.which[1])] : null];
}

function showDetail(route, view, tree) {
  const [pair, step] = openedBy(route, view, tree);
  for (const row of stage.querySelectorAll("tr[data-pair]")) row.classList.toggle("here", row.dataset.pair === pair?.id);
  if (pair || step) openDetail(view, tree, pair, step);
  else closeDetail();
  stage.querySelector(".gone").textContent = route.what === "pair" && !pair ? "The pair of this address is not here." : "";
  // after that, because an open detail leaves the drawing less room
  drawAgain(view, tree, pair, step);
  if ((pair || step) && narrow.matches) detail.scrollIntoView({ block: "start" });
  markWords(detail);
}

function drawAgain(view, tree, opened, step) {
  const pair = opened?.tree === tree ? opened : null;
  const of = JSON.stringify([view.number, tree]);
  if (state.drawn?.of !== of) state.drawn = { of, unfolded: new Set(), zoom: 1 };
  redraw(view, tree, { pair, step }, state.drawn, {
    again: (changes) => {
      Object.assign(state.drawn, changes);
      const label = document.activeElement.getAttribute("aria-label");
      drawAgain(view, tree, pair, step);
      if (label) stage.querySelector(`.how-much [aria-label="${CSS.escape(label)}"]`)?.focus();
    },
    open: (picked) => {
      location.hash = questionLink(view.link, "step", tree, picked.id);
    },
  });
  const svg = stage.querySelector(".frame svg");
  if (svg) markInTree(svg, { step: step ? step.id : null, pair });
}

function openDetail(view, tree, pair, step) {
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", on: { click: () => leaveDetail(view, tree, pair, step) } }, "✕");
  detail.replaceChildren(close, ...flat(pair ? pairDetail(view, pair, state.overview.calibration) : stepDetail(view, tree, step)));
  detail.hidden = false;
  detail.scrollTop = 0;
  document.body.dataset.detail = "open";
  detail.querySelector("h3").focus({ preventScroll: true });
}

/** Closes the detail; the keyboard goes back to where it was opened from. */
function leaveDetail(view, tree, pair, step) {
  const row = pair && [...stage.querySelectorAll("tr[data-pair]")].find((each) => each.dataset.pair === pair.id);
  const opener = row ? row.querySelector("a") : stage.querySelector(`.node[data-step="${step?.id}"]`);
  opener?.focus();
  location.hash = questionLink(view.link, "tree", tree);
}

const narrow = matchMedia("(max-width: 68rem)");

function closeDetail() {
  detail.hidden = true;
  detail.replaceChildren();
  delete document.body.dataset.detail;
}

function select(number) {
  state.current = number;
  const place = listed.findIndex((row) => row.number === number);
  if (place >= 0) rowIntoSight(place, number);
  for (const link of document.querySelectorAll("#questions a")) {
    if (Number(link.dataset.number) === number) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Chooses among the questions of the list. */
function refilter(changes) {
  history["find" in changes ? "replaceState" : "pushState"](null, "", link(state.route.path, changes));
  routeOf(location.hash);
  listAgain();
}

/** The list of questions anew, if the address asks for others than it has. */
function listAgain() {
  const asked = JSON.stringify(["find", "ends", "unreadable", "order"].map((name) => sought[name]));
  if (asked === state.listed) return;
  state.listed = asked;
  setFilters();
  document.getElementById("list-frame").scrollTop = 0;
  showList(state);
}

// -- keys ----------------------------------------------------------------------------------------------------

function listKeys(event) {
  const here = Number(document.activeElement.dataset.place ?? NaN);
  const there = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: listed.length - 1 }[event.key];
  if (Number.isNaN(here) || there === undefined) return;
  event.preventDefault();
  focusRow(there, state.current);
}

function pageKeys(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
  if (state.route.kind === "judge" && judgingKey(event)) return event.preventDefault();
  const keys = {
    "/": () => (stage.querySelector("input[type=search]") ?? document.getElementById("filter-find")).focus(),
    j: () => (state.evaluated ? besidePair(1) : beside(1)),
    k: () => (state.evaluated ? besidePair(-1) : beside(-1)),
    Escape: () => (state.evaluated ? keys.o() : detail.querySelector(".close")?.click()),
    t: () => stage.querySelector(".node[tabindex='0']")?.focus(),
    n: () => besidePair(1),
    p: () => besidePair(-1),
    o: () => { location.hash = link([]); },
    a: () => { location.hash = link(document.body.dataset.kind ? [] : ["pairs"]); },
  };
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}

/** The question after or before the one that is shown, among those that pass the filters. */
function beside(step) {
  const found = chosenRows(state.rows);
  const here = found.findIndex((row) => row.number === state.current);
  const next = found[here < 0 ? 0 : here + step];
  if (next) location.hash = questionLink(next.link);
}

/** The pair after or before the one that is open, in the order of the table of pairs; without one the first of what is shown. */
function besidePair(step) {
  if (state.evaluated) return stage.querySelector(`.walk a:${step > 0 ? "last" : "first"}-child, #attempts-table tbody a`)?.click();
  const route = routeOf(location.hash);
  const first = stage.querySelector("tr[data-pair] a")?.hash;
  const here = route.what === "pair" ? placeOf(state.current, route.which[0]) : null;
  const next = here && here.place >= 0 ? here[step > 0 ? "after" : "before"] : first;
  if (next) location.hash = next;
}

function searchKeys(event) {
  if (event.key === "Enter" && listed.length === 1) location.hash = questionLink(listed[0].link);
  else if (event.key === "Enter") focusRow(0, state.current);
  else if (event.key === "Escape" && !event.target.value) event.target.blur();
}

// -- beginning -----------------------------------------------------------------------------------------------

const CALM_MS = 3_000;

function received(part) {
  if (part.kind) document.body.dataset.kind = part.kind;
  if (part.kind === "trainings") {
    state.trained = part;
    return go();
  }
  if (part.kind === "folder") {
    if (JSON.stringify(part) === JSON.stringify(state.folder)) return;
    Object.assign(state, { folder: part, complete: true });
    return showFolder();
  }
  const first = state.overview === null;
  const finished = part.rows && part.complete && !state.complete;
  if (part.kind === "evaluations") takeAttempts(part);
  else if (part.rows) takeIn(part);
  showLive(part);
  if (finished && !state.evaluated && part.rows.length === 1 && part.run?.state !== "running" && !location.hash) location.replace(questionLink(part.rows[0].link));
  if (finished && state.view?.pairs.some((pair) => pair.tags.length)) state.view = null; // what is capped is known now
  if (state.route.kind === "judge" && !first) return;
  const waits = state.route.kind === "overview" && Date.now() - state.drawnAt < CALM_MS; // charts take a while
  if (!state.behind || state.view || (state.evaluated && state.route.kind === "question" && !first) || !(finished || first || !(busy() || waits))) return;
  Object.assign(state, { behind: false, drawnAt: Date.now() });
  if (state.route.kind === "pairs" && stage.querySelector(".pairs-form")) return;
  const top = scroller().scrollTop;
  go();
  scroller().scrollTop = top;
}

function takeAttempts(part) {
  const failed = part.rows.filter((row) => row.scores[0]?.error).length; // how far it is is told of one alone
  Object.assign(state, { behind: true, rows: part.rows, evaluated: part, complete: true, overview: { questions: part.rows.length, ends: { failed }, warnings: [] } });
  for (const row of part.rows) row.ids = [row.id];
  state.byId = linked(part.rows);
  if (hits) hits.done = false; // there may be questions that were not searched
}

/** Takes what is listed now in the place of what was; the list stays where it was scrolled to. */
function takeIn(part) {
  state.behind = true;
  Object.assign(state, { rows: part.rows, overview: part.overview, about: part.about, complete: part.complete, read: part.read });
  held = part.held ? new Set(part.held) : null;
  state.byId = linked(part.rows);
  state.byNumber = new Map(part.rows.map((row) => [row.number, row]));
  stale = true;
  if ((part.complete && columns.unread) || pairsAreShown()) setTimeout(bringPairs); // once the list is drawn
  const choices = JSON.stringify([part.overview.ends, part.overview.questions_with_a_pair]);
  if (choices !== state.filled) fillFilters(part.overview);
  state.filled = choices;
  showList(state);
}

/** Whether the reader is using the stage, which would be drawn again. */
function busy() {
  return (stage.contains(document.activeElement) && stage !== document.activeElement) || stage.querySelector("details[open]:not([data-open])") !== null || !getSelection().isCollapsed;
}

/** The rows by what links call them: the id, with the number behind it where another question has it already. */
function linked(rows) {
  const found = new Map();
  for (const row of rows) {
    row.link = found.has(row.id) ? `${row.id}~${row.number}` : row.id;
    found.set(row.link, row);
  }
  for (const row of rows) for (const id of row.ids) if (!found.has(id)) found.set(id, row);
  return found;
}

function listenToTheme() {
  const { style } = document.documentElement;
  const kept = (act) => { try { return act(localStorage); } catch { return ""; } }; // some browsers keep nothing for a page
  style.colorScheme = kept((store) => store.getItem("reasonrag-scheme")) ?? "";
  document.getElementById("theme").addEventListener("click", () => {
    const dark = style.colorScheme ? style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    style.colorScheme = dark ? "light" : "dark";
    kept((store) => store.setItem("reasonrag-scheme", style.colorScheme));
  });
}

let waiting = 0;

/** Links that stay in the page say what is sought when they are used. */
function freshLink(event) {
  const anchor = event.target.closest?.(".head nav a, #questions a");
  if (!anchor) return;
  const row = state.byNumber.get(Number(anchor.dataset.number));
  anchor.href = row ? questionLink(row.link) : link(anchor.dataset.kind === "overview" ? [] : [anchor.dataset.kind]);
}

listenToTheme();
for (const when of ["pointerover", "focusin"]) document.addEventListener(when, freshLink);
listenToFilters((changes) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => refilter(changes), 80);
});
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("filter-find").addEventListener("keydown", searchKeys);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  stage.focus();
});
document.getElementById("questions").addEventListener("keydown", listKeys);
document.getElementById("list-frame").addEventListener("scroll", () => drawRows(state.current), { passive: true });
addEventListener("resize", () => {
  drawRows(state.current);
  const [, tree] = JSON.parse(stage.querySelector("[data-shown]")?.dataset.shown ?? "[]");
  if (state.view && tree !== undefined) drawAgain(state.view, tree, ...openedBy(state.route, state.view, tree));
});
document.addEventListener("keydown", pageKeys);
addEventListener("hashchange", (event) => {
  scrolled.set(new URL(event.oldURL).hash, scroller().scrollTop);
  go(false);
});
source.list(received).catch((error) => {
  stage.replaceChildren(h("p", { class: "verdict error" }, "The page could not be read: ", said(error.message)));
});
