// The list of questions: search, filters, order. Decides which rows are shown; only those in sight are in the document,
// so that long lists scroll as short ones do. Knows nothing of trees.

const ORDERS = {
  file: ["original order", () => 0],
  pairs: ["most pairs", (a, b) => b.pairs - a.pairs],
  cost: ["most completions", (a, b) => (b.calls ?? 0) - (a.calls ?? 0)],
  f1: ["lowest F1", (a, b) => (a.f1 ?? 2) - (b.f1 ?? 2)],
};

function passes(row) {
  const known = { pair: row.pairs > 0, none: row.pairs === 0, tree: row.ends !== "failed" };
  if (sought.ends && !(known[sought.ends] ?? row.ends === sought.ends)) return false;
  if (sought.unreadable && !Object.keys(row.unreadable).length) return false;
  row.searched ??= [...row.ids, row.question, ...row.golden_answers, row.cause ?? "", ...Object.keys(row.unreadable)].join("\n").toLowerCase();
  return fits(wordsOf(sought.find), row.searched);
}

let held = null;

/** Whether the page has the tree of a question; one that has no room for all has those of a sample. */
function isHeld(number) {
  return held === null || held.has(number);
}

/** The rows that pass, in order; those whose trees are here first. */
function chosenRows(rows) {
  const order = ORDERS[Object.hasOwn(ORDERS, sought.order) ? sought.order : "file"][1];
  const found = rows.filter((row) => row && passes(row));
  if (sought.order === "file" && held === null) return found;
  return found.toSorted((a, b) => isHeld(b.number) - isHeld(a.number) || order(a, b));
}

function rowElement(row, place, current) {
  const facts = [h("span", { class: `end ${row.ends}` }, ENDS[row.ends] ?? row.ends)];
  if (row.cause) facts.push(h("span", {}, line(row.cause, 40)));
  if (row.f1 !== null) facts.push(h("span", {}, `F1 ${number(row.f1)}`));
  if (row.ends !== "failed") facts.push(h("span", {}, plural(row.pairs, "pair")));
  if (!isHeld(row.number)) facts.push(h("span", {}, "tree not embedded"));
  if (row.review) facts.push(h("span", { class: "warning" }, `⚠ ${row.review} to review`));
  const unread = d3.sum(Object.values(row.unreadable));
  if (unread) facts.push(h("span", { class: "warning" }, `${unread} unreadable`));
  const short = facts.reduce((sum, fact) => sum + fact.textContent.length + 2, 0) > 38; // they need a second line
  const item = h("li", { "aria-posinset": place + 1, "aria-setsize": listed.length },
    h("a", { href: questionLink(row.link), "data-number": row.number, "data-place": place, "aria-current": row.number === current ? "page" : null },
      h("span", { class: short ? "asked short" : "asked" }, said(line(row.question, 160))), h("span", { class: "facts" }, facts)));
  item.style.top = `${place * ROW_REM}rem`;
  return item;
}

/** Fills the choices with what there is to choose from. */
function fillFilters(overview) {
  const choices = {
    ends: [["", "any outcome"], ...Object.entries(overview.ends).map(([name, many]) => [name, `${ENDS[name] ?? name} (${count(many)})`]), ["tree", `with a tree (${count(overview.questions - (overview.ends.failed ?? 0))})`], ["pair", `with a pair (${count(overview.questions_with_a_pair)})`], ["none", `without a pair (${count(overview.questions - overview.questions_with_a_pair)})`]],
    order: Object.entries(ORDERS).map(([name, [text]]) => [name, text]),
  };
  for (const [name, found] of Object.entries(choices)) {
    const select = document.getElementById(`filter-${name}`);
    if (select === document.activeElement) continue; // the reader is choosing
    select.replaceChildren(...found.map(([value, text]) => h("option", { value, selected: value === sought[name] }, text)));
  }
}

const ROW_REM = 6.3;
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
  document.getElementById("clear").hidden = !["find", "ends", "unreadable"].some((name) => sought[name]);
}

/** Listens to the filters; `changed` is told what of the address is another one. */
function listenToFilters(changed) {
  const read = { find: (element) => element.value, unreadable: (element) => (element.checked ? "1" : "") };
  for (const name of ["find", "ends", "unreadable", "order"]) {
    const element = document.getElementById(`filter-${name}`);
    element.addEventListener("input", () => changed({ [name]: read[name] ? read[name](element) : element.value }));
  }
  document.getElementById("clear").addEventListener("click", () => {
    changed({ find: "", ends: "", unreadable: "" });
    document.getElementById("filter-find").focus();
  });
}

/** Shows in the filters what is sought. */
function setFilters() {
  for (const name of ["find", "ends", "order"]) {
    const element = document.getElementById(`filter-${name}`);
    if (element !== document.activeElement) element.value = sought[name];
  }
  document.getElementById("filter-unreadable").checked = sought.unreadable === "1";
}
