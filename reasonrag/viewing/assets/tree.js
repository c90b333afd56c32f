// The drawing of a tree: the question at the left, a column for each depth, the child with the smallest branch beside its
// parent. Decides what is drawn how, by d3.

const ROW = 44;
const COLUMN = 260;
const LETTERS = 27;
const FORK = COLUMN - 56;

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

/** The second line of a step: its reward, and how it ended. */
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

function described(step, role) {
  if (step.parent === null) return "The question";
  const what = `Step ${step.id}, ${typeOf(step)}, depth ${step.layer}: ${line(step.content ?? step.response, 200)}`;
  const roles = { chosen: "chosen in a pair", rejected: "rejected in a pair", both: "chosen in one pair, rejected in another" };
  return [what, rewardLine(step), roles[roleName(role)]].filter(Boolean).join(". ");
}

/** The steps to draw for one pair: the path to its state, and every step taken there; all else is folded. */
function aroundChoice(steps, pair) {
  const parents = new Set([steps[pair.chosen].parent, steps[pair.rejected].parent]);
  const way = new Set();
  for (const parent of parents) for (let id = parent; id !== null; id = steps[id].parent) way.add(id);
  return steps.filter((step) => way.has(step.id) || parents.has(step.parent));
}

/** How many steps there are below each, by id. */
function descendants(steps) {
  const below = steps.map(() => 0);
  for (const step of steps.toReversed()) if (step.parent !== null) below[step.parent] += below[step.id] + 1;
  return below;
}

/** Draws a tree: all of it, or what is around the choice that a pair is of. `open` is called with a step that is picked. */
function drawTree(view, tree, { pair = null, open }) {
  const every = view.trees[tree].steps;
  const steps = pair ? aroundChoice(every, pair) : every;
  const below = descendants(every);
  const drawn = d3.rollup(steps, (all) => all.length, (step) => step.parent);
  const folded = (step) => (below[step.id] && !drawn.has(step.id) ? below[step.id] : 0);
  const roles = rolesOf(view, tree);
  const root = d3.stratify().id((step) => step.id).parentId((step) => step.parent)(steps);
  // small branches first, so that the lines to the large ones stay short
  root.count().sort((a, b) => a.value - b.value || a.data.id - b.data.id);
  let leaves = 0;
  root.eachAfter((node) => {
    node.y = node.depth * COLUMN + 20;
    node.x = node.children ? node.children[0].x : 1.4 * ROW + ROW * leaves++;
  });
  const height = ROW * (leaves + 1.2);
  const width = (root.height + 1) * COLUMN + (pair ? 84 : 24); // what is folded behind a step is counted in its words
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
    .attr("x", (layer) => (layer + 1) * COLUMN + 8).attr("y", 16).text((layer) => `depth ${layer}`);

  const thickness = d3.scaleSqrt([0, d3.max(steps, (step) => step.visits) || 1], [1, 4.5]);
  // lines fork behind the words of the step that they begin at
  const fork = (node) => [node.y + FORK, node.x];
  const link = d3.linkHorizontal().source((edge) => fork(edge.source)).target((edge) => place(edge.target));
  const edges = svg.append("g").attr("class", "edges").attr("aria-hidden", "true");
  edges.selectAll(".trunk").data(root.descendants().filter((each) => each.children)).join("path")
    .attr("class", "edge trunk")
    .attr("stroke-width", ({ data }) => thickness(data.visits))
    .attr("d", (each) => d3.line()([place(each), fork(each)]));
  edges.selectAll(".branch").data(root.links()).join("path")
    .attr("class", ({ target }) => `edge branch ${roleName(roles.get(target.data.id))} ${target.data.fate}`)
    .attr("data-step", ({ target }) => target.data.id)
    .attr("stroke-width", ({ target }) => Math.max(thickness(target.data.visits), roles.has(target.data.id) ? 3 : 1))
    .attr("d", link);

  const node = svg.append("g").attr("role", "presentation")
    .selectAll("g").data(root.descendants()).join("g")
    .attr("class", ({ data }) => `node ${data.parent === null ? "root" : typeOf(data)} ${data.fate}`)
    .attr("transform", (each) => `translate(${place(each)})`)
    .attr("role", "treeitem")
    .attr("aria-level", (each) => each.depth + 1)
    .attr("aria-expanded", (each) => (each.children ? "true" : null))
    .attr("aria-selected", "false")
    .attr("aria-label", ({ data }) => described(data, roles.get(data.id)))
    .attr("tabindex", (each) => (each.depth === 0 ? 0 : -1))
    .attr("data-step", ({ data }) => data.id)
    .on("click", (event, { data }) => open(data))
    .on("keydown", (event, each) => moveInTree(event, each, svg.node(), open));

  node.append("title").text(({ data }) => described(data, roles.get(data.id)));
  node.append("rect").attr("class", "target").attr("x", -13).attr("y", -ROW / 2 + 1)
    .attr("width", COLUMN - 22).attr("height", ROW - 2).attr("rx", 6);
  node.append("path").attr("class", "mark")
    .attr("d", ({ data }) => d3.symbol(data.parent === null ? d3.symbolStar : d3[TYPES[typeOf(data)].symbol], 130)())
    .style("--reward", ({ data }) => `${Math.round(100 * (data.reward ?? 0))}%`)
    .classed("unknown", ({ data }) => data.reward === null);
  const label = node.append("text").attr("x", 14).attr("unicode-bidi", "isolate");
  label.append("tspan").attr("class", "content").attr("x", 14).attr("dy", "-0.5em")
    .text(({ data }) => (data.parent === null ? line(view.question, LETTERS) : line(data.content ?? data.response, LETTERS)));
  label.append("tspan").attr("class", "reward").attr("x", 14).attr("dy", "1.75em")
    .text(({ data }) => (data.parent === null ? "the question" : [rewardLine(data), folded(data) ? `+${folded(data)} below` : ""].filter(Boolean).join(" · ")));
  const mark = node.filter(({ data }) => roles.has(data.id));
  mark.append("text").attr("class", ({ data }) => `role ${roleName(roles.get(data.id))}`)
    .attr("x", -9).attr("y", -9).attr("text-anchor", "middle")
    .text(({ data }) => ({ chosen: "✓", rejected: "✗", both: "±" })[roleName(roles.get(data.id))]);
  return svg.node();
}

/** Arrow keys go through the tree as the eye does; Enter and space open a step. */
function moveInTree(event, node, svg, open) {
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
  for (const element of svg.querySelectorAll("[data-step]")) {
    const id = Number(element.dataset.step);
    const here = marked.includes(id);
    element.classList.toggle("here", here);
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
