// Puts the page together: what the address says is what is shown; keys, and what happens while data is on its way.

const state = { rows: [], byId: new Map(), complete: false, read: 0, current: null, overview: null, about: [], view: null, size: "choice", filled: "" };
const stage = document.getElementById("stage");
const detail = document.getElementById("detail");

function routeOf(address) {
  const [, kind, ...rest] = address.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  if (kind !== "q" || !rest.length) return { kind: "overview" };
  const [id, what, ...which] = rest;
  return { kind: "question", id, what, which };
}

let turns = 0;

/** Shows what the address names. */
async function go() {
  const route = routeOf(location.hash);
  const turn = ++turns;
  document.body.dataset.route = route.kind;
  if (route.kind === "overview") {
    state.view = null;
    select(null);
    closeDetail();
    if (state.overview) stage.replaceChildren(...flat(overviewSection(state.overview, state.about, filterBy)));
    document.title = document.body.dataset.title;
    return;
  }
  const row = state.byId.get(route.id);
  if (!row) {
    stage.replaceChildren(h("p", { class: "note" }, state.complete ? `There is no question ${line(route.id, 80)} here.` : "Still reading…"));
    closeDetail();
    return;
  }
  if (state.view?.number !== row.number) {
    select(row.number);
    stage.replaceChildren(h("p", { class: "note", role: "status" }, "Reading…"));
    closeDetail();
    try {
      const view = await source.question(row.number);
      if (turn !== turns) return; // somebody has gone on meanwhile
      state.view = view;
    } catch (error) {
      state.view = null;
      stage.replaceChildren(h("p", { class: "verdict error" }, "This question could not be read: ", said(error.message)));
      return;
    }
    if (!state.view) {
      stage.replaceChildren(...flat(onlyInTheList(row)));
      return;
    }
  }
  showQuestion(route, row);
}

function flat(nodes) {
  return [nodes].flat(Infinity).filter(Boolean);
}

/** Of a question whose tree the page had no room for. */
function onlyInTheList(row) {
  return [
    h("a", { class: "back", href: "#/" }, "← all questions"),
    h("h2", { tabindex: -1 }, said(row.question)),
    h("p", { class: "note" }, "The page had no room for the tree of this question: it holds those of a sample. See them all with ", h("code", {}, "reasonrag view --serve"), ", or this one with ", h("code", {}, `reasonrag show`), "."),
  ];
}

function showQuestion(route, row) {
  const view = state.view;
  const treeOf = { tree: () => Number(route.which[0]), step: () => Number(route.which[0]), pair: () => pairOf(view, route)?.tree };
  const wanted = treeOf[route.what]?.() ?? 0;
  const tree = view.trees[wanted] ? wanted : 0;
  const shown = stage.querySelector("[data-shown]")?.dataset.shown;
  const name = JSON.stringify([view.number, tree]);
  if (shown !== name) {
    const section = h("div", { "data-shown": name }, flat(questionSection(view, row, tree)));
    stage.replaceChildren(section);
    stage.scrollTop = 0;
  }
  document.title = `${line(view.question, 60)} – ${document.body.dataset.title}`;
  showDetail(route, view, tree);
}

function pairOf(view, route) {
  const pair = view.pairs.find((each) => each.id === route.which[0]);
  return pair && { ...pair, tree: view.states[pair.state].tree };
}

function showDetail(route, view, tree) {
  const pair = route.what === "pair" ? pairOf(view, route) : null;
  const step = route.what === "step" ? view.trees[tree]?.steps[Number(route.which[1])] : null;
  for (const row of stage.querySelectorAll("tr[data-pair]")) row.classList.toggle("here", row.dataset.pair === pair?.id);
  if (pair || step) openDetail(view, tree, pair, step);
  else closeDetail();
  // after that, because an open detail leaves the drawing less room
  redraw(view, tree, pair?.tree === tree ? pair : null, {
    size: state.size,
    choose: (size) => {
      state.size = size;
      showDetail(route, view, tree);
      stage.querySelector(`.how-much [data-size="${size}"]`)?.focus();
    },
    open: (picked) => {
      location.hash = questionLink(view.id, "step", tree, picked.id);
    },
  });
  const svg = stage.querySelector(".frame svg");
  if (svg) markInTree(svg, { step: step ? step.id : null, pair: pair && pair.tree === tree ? pair : null });
}

function openDetail(view, tree, pair, step) {
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", on: { click: () => { location.hash = questionLink(view.id, "tree", tree); } } }, "✕");
  detail.replaceChildren(close, ...flat(pair ? pairDetail(view, pair) : stepDetail(view, tree, step)));
  detail.hidden = false;
  detail.scrollTop = 0;
  document.body.dataset.detail = "open";
  const heading = detail.querySelector("h3");
  heading.focus({ preventScroll: true });
  if (narrow.matches) heading.scrollIntoView({ block: "start" });
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

function filterBy(wanted) {
  setFilters(wanted);
  document.getElementById("list-frame").scrollTop = 0;
  showList(state);
  focusRow(0, state.current);
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
  const keys = {
    "/": () => document.getElementById("filter-text").focus(),
    j: () => beside(1),
    k: () => beside(-1),
    Escape: () => detail.querySelector(".close")?.click(),
    t: () => stage.querySelector(".node[tabindex='0']")?.focus(),
    o: () => { location.hash = "#/"; },
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

/** The question after or before the one that is shown, among those that pass the filters. */
function beside(step) {
  const found = chosenRows(state.rows);
  const here = found.findIndex((row) => row.number === state.current);
  const next = found[here < 0 ? 0 : here + step];
  if (next) location.hash = questionLink(next.id);
}

// -- beginning -----------------------------------------------------------------------------------------------

function received(part) {
  Object.assign(state, { rows: part.rows, overview: part.overview, about: part.about, complete: part.complete, read: part.read });
  held = part.held ? new Set(part.held) : null;
  state.byId = new Map();
  for (const row of part.rows) if (row && !state.byId.has(row.id)) state.byId.set(row.id, row);
  const choices = JSON.stringify([part.overview.ends, part.overview.dropped]);
  if (choices !== state.filled) fillFilters(part.rows, part.overview);
  state.filled = choices;
  showList(state);
  if (!state.view) go();
}

function listenToTheme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  button.addEventListener("click", () => {
    const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.style.colorScheme = dark ? "light" : "dark";
  });
}

let waiting = 0;

listenToTheme();
listenToFilters(() => {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    document.getElementById("list-frame").scrollTop = 0;
    showList(state);
  }, 80);
});
document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("questions").addEventListener("keydown", listKeys);
document.getElementById("list-frame").addEventListener("scroll", () => drawRows(state.current), { passive: true });
addEventListener("resize", () => drawRows(state.current));
document.addEventListener("keydown", pageKeys);
addEventListener("hashchange", go);
source.list(received).catch((error) => {
  stage.replaceChildren(h("p", { class: "verdict error" }, "The page could not be read: ", said(error.message)));
});
