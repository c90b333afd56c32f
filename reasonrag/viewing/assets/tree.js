// The drawing of a tree: the question at the left, a column for each depth, the child with the smallest branch beside its
// parent. Decides what is drawn how, by d3.

const ROW = 25;
const COLUMNS = [126, 240]; // narrowest and widest
const LETTER = 6.5; // width of one on the average, in pixels
const LONGEST = 42; // letters of a step that nothing stands behind
const EDGE = 12; // between the map and its frame
const SMALLEST = 0.9; // zoom, at which letters have 11 pixels

/** By id of each step that is in a kept pair: whether it is chosen or rejected there, or both. */
function rolesOf(view, tree) {
  const roles = new Map();
  for (const pair of view.pairs) {
    if (pair.dropped || view.states[pair.state].tree !== tree) continue;
    roles.set(pair.chosen, { ...roles.get(pair.chosen), chosen: true });
    roles.set(pair.rejected, { ...roles.get(pair.rejected), rejected: true });
  }
  return roles;
}

function roleName(role) {
  if (!role) return "plain";
  if (role.chosen && role.rejected) return "both";
  return role.chosen ? "chosen" : "rejected";
}

/** What is said of a step beside its words: its reward, and how it ended. */
function rewardLine(step) {
  const parts = [];
  if (step.reward !== null) parts.push(`reward ${number(step.reward)}`);
  if (step.f1 !== null && step.type === "answer") parts.push(`F1 ${number(step.f1)}`);
  if (step.parse_error) parts.push(line(step.parse_error.cause, 16));
  if (step.reward === null && step.visits && !step.terminal) parts.push(`value ${number(step.value)}`);
  if (step.visits) parts.push(plural(step.visits, "visit"));
  if (step.type === "answer" && step.f1 === 1 && step.outcome?.value === 0) parts.push("not in evidence");
  if (step.type === "answer" && step.uncounted) parts.push("not counted above");
  if (step.fate === "settled") parts.push("converged");
  if (step.fate === "repeated") parts.push(`repeats ${step.same_as}`);
  const alike = Object.keys(step.in_common ?? {});
  if (alike.length) parts.push(`reveals the same as ${alike.join(", ")}`);
  if (step.fate === "unexplored") parts.push("unexplored");
  return parts.join(" · ");
}

function described(step, role, folded = 0) {
  const more = folded ? `${plural(folded, "step")} folded` : "";
  if (step.parent === null) return ["The question", more].filter(Boolean).join(". ");
  const what = `Step ${step.id}, ${typeOf(step)}, depth ${step.layer}: ${line(step.content ?? step.response, 200)}`;
  const roles = { chosen: "chosen in a pair", rejected: "rejected in a pair", both: "chosen in one pair, rejected in another" };
  return [what, rewardLine(step), roles[roleName(role)], more].filter(Boolean).join(". ");
}

/** The smallest subtree that holds every kept pair, what is opened, and the children of steps that were unfolded; the
 * whole tree where no pair was kept. */
function stepsToDraw(steps, roles, opened, unfolded) {
  const held = new Set([...roles.keys(), ...opened]);
  if (!roles.size || unfolded === ALL) return steps;
  const way = new Set([0]);
  for (const start of [...held, ...unfolded]) for (let id = start; id !== null; id = steps[id].parent) way.add(id);
  return steps.filter((step) => way.has(step.id) || unfolded.has(step.parent));
}

const ALL = { has: () => true };

/** How many steps below each drawn one are folded, by id: those whose nearest drawn step above it is. */
function foldedBelow(every, drawn) {
  const there = new Set(drawn.map((step) => step.id));
  const holder = [];
  const folded = new Map();
  for (const { id, parent } of every) {
    holder[id] = there.has(id) ? id : holder[parent];
    if (!there.has(id)) folded.set(holder[id], (folded.get(holder[id]) ?? 0) + 1);
  }
  return folded;
}

/** What stands beside the mark of a step, and how wide it is: its words from where siblings differ, its reward, and how
 * many steps are folded. */
function labelOf(node, folded, column) {
  const { data } = node;
  const reward = data.parent === null ? "" : data.reward === null ? (data.parse_error ? "unreadable" : "") : number(data.reward);
  const more = folded ? `+${folded}` : "";
  const beside = LETTER * (reward.length + more.length) + 10;
  const letters = node.children ? Math.floor((column - 44 - beside) / LETTER) : LONGEST;
  const wordsIn = (step) => line(step.content ?? step.response);
  const siblings = node.parent ? node.parent.children.map((each) => wordsIn(each.data)) : [];
  const content = data.parent === null ? "" : line(fromWhereTheyDiffer(wordsIn(data), siblings, letters), letters);
  return { content, reward, folded: more, width: 14 + LETTER * content.length + beside };
}

/** Words of a step without those that all its siblings begin with, if it has more than fit. */
function fromWhereTheyDiffer(text, siblings, letters) {
  if (siblings.length < 2 || text.length <= letters) return text;
  let same = 0;
  while (same < text.length && siblings.every((each) => each[same] === text[same])) same += 1;
  const begin = text.lastIndexOf(" ", same) + 1;
  return begin > 3 && begin < text.length ? `…${text.slice(begin)}` : text;
}

/** The zoom at which a drawing is wholly in its frame, if letters are large enough then. */
function fitting(frame, zoom) {
  const [{ clientWidth, clientHeight }] = frame.children;
  const room = Math.min(frame.clientWidth / clientWidth, parseFloat(getComputedStyle(frame).maxHeight) / clientHeight);
  return Math.max(SMALLEST, Math.min(1, room * zoom));
}

/** Draws these steps of a tree. room: width to draw in. `open` is called with a step that is picked, `unfold` with one
 * whose folded steps are wanted. */
function drawTree(view, tree, { steps, room, open, unfold }) {
  const every = view.trees[tree].steps;
  const roles = rolesOf(view, tree);
  const folded = foldedBelow(every, steps);
  const root = d3.stratify().id((step) => step.id).parentId((step) => step.parent)(steps);
  // small branches first, so that the lines to the large ones stay short
  root.count().sort((a, b) => a.value - b.value || a.data.id - b.data.id);
  const column = Math.max(COLUMNS[0], Math.min(COLUMNS[1], (room - 50) / Math.max(1, root.height)));
  let leaves = 0;
  root.eachAfter((node) => {
    node.y = node.depth ? (node.depth - 1) * column + 60 : 14;
    node.x = node.children ? node.children[0].x : 30 + ROW * leaves++;
    Object.assign(node, labelOf(node, folded.get(node.data.id), column));
  });
  const height = ROW * leaves + 24;
  const width = Math.max(root.height * column + 50, d3.max(root.leaves(), (node) => node.y + node.width + 10));
  const place = (node) => [node.y, node.x];

  const svg = d3.create("svg")
    .attr("class", "tree")
    .attr("role", "tree")
    .attr("aria-label", `Search tree: ${plural(steps.length - 1, "step")} of ${every.length - 1}`)
    .attr("viewBox", `0 0 ${width} ${height}`)
    .attr("width", width)
    .attr("height", height);

  svg.append("g").attr("class", "depths").attr("aria-hidden", "true")
    .selectAll("text").data(d3.range(root.height)).join("text")
    .attr("x", (layer) => layer * column + 54).attr("y", 13).text((layer) => `depth ${layer}`);

  const thickness = d3.scaleSqrt([0, d3.max(steps, (step) => step.visits) || 1], [1, 4.5]);
  // lines fork behind the words of the step that they begin at
  const fork = (node) => [node.depth ? node.y + column - 26 : 26, node.x];
  const curve = d3.linkHorizontal().source((edge) => fork(edge.source)).target((edge) => place(edge.target));
  const edges = svg.append("g").attr("class", "edges").attr("aria-hidden", "true");
  edges.selectAll(".trunk").data(root.descendants().filter((each) => each.children)).join("path")
    .attr("class", "edge trunk")
    .attr("stroke-width", ({ data }) => thickness(data.visits))
    .attr("d", (each) => d3.line()([[Math.min(each.y + each.width, fork(each)[0]), each.x], fork(each)]));
  edges.selectAll(".branch").data(root.links()).join("path")
    .attr("class", ({ target }) => `edge branch ${roleName(roles.get(target.data.id))} ${target.data.fate}`)
    .attr("data-step", ({ target }) => target.data.id)
    .attr("stroke-width", ({ target }) => Math.max(thickness(target.data.visits), roles.has(target.data.id) ? 3 : 1))
    .attr("d", curve);

  const node = svg.append("g").attr("role", "presentation")
    .selectAll("g").data(root.descendants()).join("g")
    .attr("class", ({ data }) => `node ${data.parent === null ? "root" : typeOf(data)} ${data.fate}`)
    .attr("transform", (each) => `translate(${place(each)})`)
    .attr("role", "treeitem")
    .attr("aria-level", (each) => each.depth + 1)
    .attr("aria-expanded", (each) => (each.children ? "true" : folded.has(each.data.id) ? "false" : null))
    .attr("aria-selected", "false")
    .attr("aria-label", ({ data }) => described(data, roles.get(data.id), folded.get(data.id)))
    .attr("tabindex", (each) => (each.depth === 0 ? 0 : -1))
    .attr("data-step", ({ data }) => data.id)
    .on("click", (event, { data }) => (event.target.closest(".folded") ? unfold(data.id) : open(data)))
    .on("keydown", (event, each) => moveInTree(event, each, svg.node(), { open, unfold, folded }));

  node.append("title").text(({ data }) => described(data, roles.get(data.id), folded.get(data.id)));
  node.append("rect").attr("class", "target").attr("x", -11).attr("y", -ROW / 2 + 1)
    .attr("width", (each) => each.width + 8).attr("height", ROW - 2).attr("rx", 6);
  node.append("path").attr("class", "mark")
    .attr("d", ({ data }) => d3.symbol(data.parent === null ? d3.symbolStar : d3[TYPES[typeOf(data)].symbol], 110)())
    .style("--reward", ({ data }) => `${Math.round(100 * (data.reward ?? 0))}%`)
    .classed("unknown", ({ data }) => data.reward === null);
  const label = node.append("text").attr("x", 11).attr("dy", "0.34em").attr("unicode-bidi", "isolate");
  for (const [name, dx] of [["content", 0], ["reward", 5], ["folded", 5]]) {
    label.filter((each) => each[name]).append("tspan").attr("class", name).attr("dx", dx).text((each) => each[name]);
  }
  node.filter(({ data }) => roles.has(data.id)).append("text").attr("class", ({ data }) => `role ${roleName(roles.get(data.id))}`)
    .attr("x", -9).attr("y", -4).attr("text-anchor", "middle")
    .text(({ data }) => ({ chosen: "✓", rejected: "✗", both: "±" })[roleName(roles.get(data.id))]);
  return svg.node();
}

/** Arrow keys go through the tree as the eye does, to the right into what is folded; Enter and space open a step. */
function moveInTree(event, node, svg, { open, unfold, folded }) {
  const column = () => node.parent && [...svg.querySelectorAll("[role=treeitem]")]
    .map((element) => d3.select(element).datum())
    .filter((each) => each.depth === node.depth)
    .sort((a, b) => a.x - b.x);
  const beside = (step) => {
    const found = column();
    return found && found[found.indexOf(node) + step];
  };
  const moves = {
    ArrowLeft: () => node.parent,
    ArrowRight: () => node.children?.[0],
    ArrowUp: () => beside(-1),
    ArrowDown: () => beside(1),
    Home: () => node.ancestors().at(-1),
  };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    open(node.data);
  } else if (folded.has(node.data.id) && (event.key === "+" || (event.key === "ArrowRight" && !node.children))) {
    event.preventDefault();
    unfold(node.data.id);
  } else if (moves[event.key]) {
    event.preventDefault();
    const target = moves[event.key]();
    if (target) focusStep(svg, target.data.id);
  }
}

/** Makes a step the one that the keyboard is on. */
function focusStep(svg, id, { focus = true } = {}) {
  const found = svg.querySelector(`.node[data-step="${id}"]`);
  if (!found) return;
  for (const each of svg.querySelectorAll("[role=treeitem]")) each.setAttribute("tabindex", each === found ? 0 : -1);
  if (focus) found.focus();
}

/** Marks what is being looked at: a step, or the two steps of a pair, whose edges then stand out. */
function markInTree(svg, { step = null, pair = null }) {
  svg.classList.toggle("of-a-pair", pair !== null);
  const marked = pair ? [pair.chosen, pair.rejected] : step === null ? [] : [step];
  const way = new Set();
  for (const id of marked) {
    let node = svg.querySelector(`.node[data-step="${id}"]`);
    for (node = node && d3.select(node).datum(); node; node = node.parent) way.add(node.data.id);
  }
  d3.select(svg).selectAll(".trunk").classed("way", ({ data }) => way.has(data.id) && !marked.includes(data.id));
  for (const element of svg.querySelectorAll("[data-step]")) {
    const id = Number(element.dataset.step);
    const here = marked.includes(id);
    element.classList.toggle("here", here);
    element.classList.toggle("way", way.has(id));
    element.classList.toggle("as-chosen", pair?.chosen === id);
    element.classList.toggle("as-rejected", pair?.rejected === id);
    if (element.getAttribute("role") === "treeitem") element.setAttribute("aria-selected", String(here));
  }
  if (marked.length) {
    focusStep(svg, marked[0], { focus: false });
    intoSight(svg, marked);
  }
}

/** Scrolls the drawing, and nothing else, so that these steps are seen. */
function intoSight(svg, ids) {
  const frame = svg.parentElement;
  const boxes = ids.map((id) => svg.querySelector(`.node[data-step="${id}"]`)?.getBoundingClientRect()).filter(Boolean);
  if (!frame || !boxes.length) return;
  const here = frame.getBoundingClientRect();
  const middle = (low, high, room) => {
    const [first, last] = [d3.min(boxes, (box) => box[low]), d3.max(boxes, (box) => box[high])];
    return last - first < room ? (first + last) / 2 : (boxes[0][low] + boxes[0][high]) / 2;
  };
  const seen = boxes.every((box) => box.left >= here.left && box.right <= here.right && box.top >= here.top && box.bottom <= here.bottom);
  if (seen) return;
  frame.scrollTo(
    frame.scrollLeft + middle("left", "right", here.width) - (here.left + here.right) / 2,
    frame.scrollTop + middle("top", "bottom", here.height) - (here.top + here.bottom) / 2,
  );
}

/** Moves the drawing with the pointer. */
function pannable(frame) {
  let from = null;
  frame.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && !event.target.closest(".node")) from = [event.clientX + frame.scrollLeft, event.clientY + frame.scrollTop];
  });
  frame.addEventListener("pointermove", (event) => {
    if (from && event.buttons) frame.scrollTo(from[0] - event.clientX, from[1] - event.clientY);
    else from = null;
  });
  return frame;
}

/** A small map of a drawing that is larger than its frame: where pairs are, and what is in sight; a click goes there. It
 * stands in a corner where it covers no step, and nowhere if there is none. */
function minimap(frame) {
  const svg = frame.querySelector("svg.tree");
  const [width, height] = [svg.clientWidth, svg.clientHeight];
  if (width < 1.2 * frame.clientWidth && height < 1.2 * frame.clientHeight) return null;
  const scale = Math.min(150 / width, 110 / height);
  const map = d3.create("svg").attr("class", "minimap").attr("width", width * scale).attr("height", height * scale).attr("viewBox", `0 0 ${width} ${height}`).attr("aria-hidden", "true");
  const zoom = width / svg.viewBox.baseVal.width;
  map.selectAll("circle").data(d3.select(svg).selectAll(".node").nodes()).join("circle").attr("r", 3 / scale / 2)
    .attr("class", (each) => each.querySelector(".role")?.getAttribute("class") ?? "")
    .attr("cx", (each) => d3.select(each).datum().y * zoom).attr("cy", (each) => d3.select(each).datum().x * zoom);
  const steps = d3.select(svg).selectAll(".node").data();
  const sight = map.append("rect");
  const corners = d3.cross([EDGE, frame.clientWidth - width * scale - EDGE], [frame.clientHeight - height * scale - EDGE, EDGE]);
  const isFree = ([left, top]) => {
    const [x, y] = [frame.scrollLeft + left, frame.scrollTop + top].map((each) => each / zoom);
    const [right, bottom] = [x + (width * scale) / zoom, y + (height * scale) / zoom];
    return steps.every((step) => step.y + step.width < x || step.y - 14 > right || step.x + ROW / 2 < y || step.x - ROW / 2 > bottom);
  };
  const follow = () => {
    const corner = corners.find(isFree);
    map.attr("hidden", corner ? null : "").style("left", `${corner?.[0]}px`).style("top", `${corner?.[1]}px`);
    sight.attr("x", frame.scrollLeft).attr("y", frame.scrollTop).attr("width", Math.min(width, frame.clientWidth)).attr("height", Math.min(height, frame.clientHeight));
  };
  frame.onscroll = follow;
  map.on("click", (event) => {
    const [x, y] = d3.pointer(event);
    frame.scrollTo(x - frame.clientWidth / 2, y - frame.clientHeight / 2);
  });
  follow();
  return map.node();
}
