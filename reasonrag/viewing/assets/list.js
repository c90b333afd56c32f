// The list of questions: search, filters, order. Decides which rows are shown; only those in sight are in the document,
// so that long lists scroll as short ones do. Knows nothing of trees.

const filters = { text: "", ends: "", type: "", dropped: "", margin: 0, unreadable: false, doubtful: false, order: "file" };

const ORDERS = {
  file: ["original order", () => 0],
  pairs: ["most pairs", (a, b) => b.kept.length - a.kept.length],
  margin: ["widest margin", (a, b) => widest(b) - widest(a)],
  cost: ["most completions", (a, b) => (b.calls ?? 0) - (a.calls ?? 0)],
  f1: ["lowest F1", (a, b) => (a.f1 ?? 2) - (b.f1 ?? 2)],
};

function widest(row) {
  return row.kept.reduce((found, pair) => Math.max(found, pair.margin ?? 0), -1);
}

function passes(row) {
  if (filters.ends && row.ends !== filters.ends) return false;
  if (filters.dropped && !row.dropped[filters.dropped]) return false;
  if (filters.unreadable && !row.unreadable) return false;
  if (filters.doubtful && !row.kept.some((pair) => pair.doubtful)) return false;
  if (filters.type || filters.margin > 0) {
    const fits = (pair) =>
      (!filters.type || (pair.type ?? "unreadable") === filters.type) && (pair.margin ?? 0) >= filters.margin;
    if (!row.kept.some(fits)) return false;
  }
  if (!filters.text) return true;
  row.searched ??= [...row.ids, row.question, ...row.golden_answers].join("\n").toLowerCase();
  return filters.text.split(/\s+/u).every((word) => row.searched.includes(word));
}

let held = null;

/** Whether the page has the tree of a question; one that has no room for all has those of a sample. */
function isHeld(number) {
  return held === null || held.has(number);
}

/** The rows that pass, in order; those whose trees are here first. */
function chosenRows(rows) {
  const order = ORDERS[filters.order][1];
  const found = rows.filter((row) => row && passes(row));
  if (filters.order === "file" && held === null) return found;
  return found.toSorted((a, b) => isHeld(b.number) - isHeld(a.number) || order(a, b));
}

function rowElement(row, place, current) {
  const facts = [h("span", { class: `end ${row.ends}` }, ENDS[row.ends] ?? row.ends)];
  if (row.cause) facts.push(h("span", {}, line(row.cause, 40)));
  if (row.f1 !== null) facts.push(h("span", {}, `F1 ${number(row.f1)}`));
  if (row.ends !== "failed") facts.push(h("span", {}, plural(row.kept.length, "pair")));
  if (!isHeld(row.number)) facts.push(h("span", {}, "tree not embedded"));
  const doubtful = row.kept.filter((pair) => pair.doubtful).length;
  if (doubtful) facts.push(h("span", { class: "warning", title: "pairs that need review" }, `⚠ ${doubtful}`));
  if (row.unreadable) facts.push(h("span", { class: "warning" }, `${row.unreadable} unreadable`));
  const item = h(
    "li",
    { "aria-posinset": place + 1, "aria-setsize": listed.length },
    h(
      "a",
      { href: questionLink(row.link), "data-number": row.number, "data-place": place, "aria-current": row.number === current ? "page" : null },
      h("span", { class: "asked" }, said(line(row.question, 160))),
      h("span", { class: "facts" }, facts),
    ),
  );
  item.style.top = `${place * ROW_REM}rem`;
  return item;
}

function typesOf(rows) {
  return new Set(rows.flatMap((row) => row?.kept.map((pair) => pair.type ?? "unreadable") ?? []));
}

function option(value, text, chosen) {
  return h("option", { value, selected: value === chosen }, text);
}

/** Fills the choices with what there is to choose from; keeps what was chosen. */
function fillFilters(rows, overview) {
  const reasons = Object.entries(overview.dropped);
  const choices = {
    ends: [["", "any outcome"], ...Object.entries(overview.ends).map(([name, many]) => [name, `${ENDS[name] ?? name} (${count(many)})`])],
    type: [["", "any pair"], ...Object.keys(TYPES).filter((name) => typesOf(rows).has(name)).map((name) => [name, `has pair: ${name}`])],
    dropped: [["", "any drop reason"], ...reasons.map(([name, many]) => [name, `dropped: ${words(name)} (${count(many)})`])],
    order: Object.entries(ORDERS).map(([name, [text]]) => [name, text]),
  };
  for (const [name, found] of Object.entries(choices)) {
    const select = document.getElementById(`filter-${name}`);
    if (select === document.activeElement) continue; // the reader is choosing
    select.replaceChildren(...found.map(([value, text]) => option(value, text, filters[name])));
  }
}

const ROW_REM = 5.5;
const SPARE = 8; // rows drawn above and below those in sight
let listed = [];
const drawn = new Map(); // elements by place in the list

/** Height of a row, in pixels. */
function rowHeight() {
  return ROW_REM * parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/** Adds rows that came into sight and removes the others, except one that has the keyboard. */
function drawRows(current) {
  const frame = document.getElementById("list-frame");
  const height = rowHeight();
  const first = Math.max(0, Math.floor(frame.scrollTop / height) - SPARE);
  const last = Math.min(listed.length, Math.ceil((frame.scrollTop + frame.clientHeight) / height) + SPARE);
  for (const [place, element] of drawn) {
    if ((place < first || place >= last) && !element.contains(document.activeElement)) {
      element.remove();
      drawn.delete(place);
    }
  }
  const list = document.getElementById("questions");
  for (let place = first; place < last; place++) {
    if (drawn.has(place)) continue;
    const element = rowElement(listed[place], place, current);
    const after = [...list.children].find((each) => Number(each.firstChild.dataset.place) > place);
    drawn.set(place, element);
    list.insertBefore(element, after ?? null); // in order for keys and screen readers too
  }
}

/** Scrolls the list as far as it takes to see a row. */
function rowIntoSight(place, current) {
  const frame = document.getElementById("list-frame");
  const height = rowHeight();
  const [top, bottom] = [place * height, (place + 1) * height];
  if (top < frame.scrollTop) frame.scrollTop = top;
  if (bottom > frame.scrollTop + frame.clientHeight) frame.scrollTop = bottom - frame.clientHeight;
  drawRows(current);
}

/** Gives the keyboard to a row. */
function focusRow(place, current) {
  if (!listed[place]) return;
  rowIntoSight(place, current);
  drawn.get(place)?.querySelector("a").focus({ preventScroll: true });
}

/** Puts the rows that pass into the page, and says how many they are. */
function showList(state) {
  const found = chosenRows(state.rows);
  const list = document.getElementById("questions");
  const had = list.contains(document.activeElement) ? Number(document.activeElement.dataset.number) : null;
  listed = found;
  drawn.clear();
  list.replaceChildren();
  list.style.height = `${found.length * ROW_REM}rem`;
  drawRows(state.current);
  const again = had === null ? -1 : found.findIndex((row) => row.number === had);
  if (again >= 0) focusRow(again, state.current);
  const reading = state.complete ? "" : `, ${Math.round(100 * state.read)} % read`;
  const all = state.rows.length;
  const some = found.length ? `${count(found.length)} of ${plural(all, "question")}` : `none of ${plural(all, "question")}`;
  document.getElementById("found").textContent = (found.length === all ? plural(all, "question") : some) + reading;
  document.getElementById("clear").hidden = !anyFilter();
}

function anyFilter() {
  const { text, ends, type, dropped, margin, unreadable, doubtful } = filters;
  return Boolean(text || ends || type || dropped || margin > 0 || unreadable || doubtful);
}

/** Listens to the filters; `changed` is called after each change. */
function listenToFilters(changed) {
  const read = {
    text: (element) => element.value.trim().toLowerCase(),
    margin: (element) => Number(element.value),
    unreadable: (element) => element.checked,
    doubtful: (element) => element.checked,
  };
  for (const name of Object.keys(filters)) {
    const element = document.getElementById(`filter-${name}`);
    element.addEventListener("input", () => {
      filters[name] = read[name] ? read[name](element) : element.value;
      document.getElementById("margin-shown").textContent = number(filters.margin);
      changed();
    });
  }
  document.getElementById("clear").addEventListener("click", () => {
    setFilters({});
    document.getElementById("filter-text").focus();
    changed();
  });
}

/** Sets these filters and clears all others. */
function setFilters(wanted) {
  Object.assign(filters, { text: "", ends: "", type: "", dropped: "", margin: 0, unreadable: false, doubtful: false }, wanted);
  for (const name of ["text", "ends", "type", "dropped", "margin"]) {
    document.getElementById(`filter-${name}`).value = filters[name];
  }
  for (const name of ["unreadable", "doubtful"]) document.getElementById(`filter-${name}`).checked = filters[name];
  document.getElementById("margin-shown").textContent = number(filters.margin);
}
