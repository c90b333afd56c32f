// One question: what is known of it, its trees and its pairs. Decides what stands where; drawing is the business of tree.js.

/** The step of a state, from its tree or, where that is not at hand, from the state itself. */
function stepOf(view, pair, id) {
  const state = view.states[pair.state];
  return state.tree === null ? state.steps.find((step) => step.id === id) : view.trees[state.tree].steps[id];
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function questionFacts(view, row, chosenTree) {
  const tree = view.trees[chosenTree];
  const golden = view.golden_answers.length ? view.golden_answers.flatMap((each, i) => [i ? ", " : "", said(each)]) : "none known";
  const facts = [fact("gold answers", golden), fact("data", said(`${view.dataset}/${view.split}`))];
  if (row) facts.push(fact("outcomes", ENDS[row.ends] ?? row.ends));
  if (tree) {
    const { calls, prompt_tokens, completion_tokens, cost_usd } = tree.usage;
    facts.push(fact("explored by", said(`recipe ${tree.recipe.name}${tree.agent ? `, agent ${tree.agent}` : ""}, seed ${tree.seed}`)));
    facts.push(fact("cost", calls === 0 ? "not known" : `${plural(calls, "completion")}, ${count(prompt_tokens)} tokens in, ${count(completion_tokens)} out, ${dollars(cost_usd)}`));
  }
  if (view.rubric) facts.push(fact("rubric", view.rubric.map((each) => h("div", {}, said(each)))));
  const titles = new Map(view.trees.flatMap((each) => each.steps).flatMap((step) => step.passages ?? []).map((each) => [each.id, each.title]));
  if (view.gold_passages) facts.push(fact("gold passages", said(view.gold_passages.map((each) => titles.get(each) ?? each).join(", ") || "none")));
  return h("dl", { class: "facts-of" }, facts);
}

/** What marks and lines of the drawing mean. */
function legend() {
  const drawn = ([width, height], name, attributes) => {
    const svg = d3.create("svg").attr("class", "tree").attr("viewBox", [-width / 2, -height / 2, width, height]).attr("width", width).attr("height", height).attr("aria-hidden", "true");
    const path = svg.append("path").attr("class", name).style("--reward", "0%");
    for (const [key, value] of Object.entries(attributes)) path.attr(key, value);
    return svg.node();
  };
  const symbol = ({ name, symbol }) => [drawn([18, 18], "mark", { d: d3.symbol(d3[symbol], 110)() }), name];
  const edge = (kind, text) => [drawn([30, 10], `edge ${kind}`, { "stroke-width": 3, d: "M-15,0H15" }), text];
  const samples = [...Object.values(TYPES).map(symbol), edge("chosen", "✓ chosen"), edge("rejected", "✗ rejected"), edge("both", "± both"), [h("span", { class: "reward-scale", "aria-hidden": "true" }), "reward 0 to 1"]];
  return h("p", { class: "samples legend" }, samples.map((each) => h("span", { class: "sample" }, each)));
}

const WORDS = [
  ["reward", "what labels compare: the mean outcome of the continuations through a step, discounted for each step from the question. 0: never right."],
  ["continuation", "a path from a step to an answer that the agent really took, reply by reply."],
  ["margin", "the reward of the chosen step minus that of the rejected one, divided by the discount at their depth if the recipe says so."],
  ["confidence", "the probability that the chosen step is truly better, given how many continuations there are."],
  ["value", "the mean that guided the search; labels use the reward instead."],
  ["visits", "how often the search passed through this step."],
  ["F1", "word overlap of an answer with the best gold answer; 1 means the same words."],
  ["reveals the same as", "shows or reports the same useful passages, or none; a pair of such steps is mostly a tie."],
  ["converged", "every continuation below has the same outcome."],
  ["open", "outcomes below are mixed, or only one continuation is known."],
];

function glossary() {
  return h("dl", { class: "glossary" }, WORDS.map(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]));
}

const HOW =
  "The question is on the left. Each step to its right is one reply of the agent; steps that fork from the same point are siblings. Depth 0 holds the first " +
  "steps. The search visited thicker lines more often. Select a step to read its prompt and reply, or a pair below to see why it was labelled that way. Keys: t enters the tree, arrows move, + unfolds, Enter " +
  "opens, Esc closes; j / k: next / previous question; n / p: next / previous pair of the table; a: all pairs; o: overview; / searches.";

/** What is known of a question, in a line; the rest is folded. */
function summaryLine(view, row) {
  const kept = view.pairs.filter((pair) => !pair.dropped).length;
  const golden = view.golden_answers.length ? view.golden_answers.flatMap((each, i) => [i ? ", " : "", said(line(each, 80))]) : "none known";
  const facts = [["gold: ", golden], row ? [ENDS[row.ends] ?? row.ends] : null, [`${plural(kept, "pair")} of ${plural(view.pairs.length, "candidate")}`]];
  return h("p", {}, facts.filter(Boolean).map((each) => h("span", {}, each)));
}

/** The part of the page that shows one question: its tree and its pairs. */
function questionSection(view, row, chosenTree) {
  const parts = [
    h("a", { class: "back", href: link([]) }, "← all questions"),
    h("h2", { tabindex: -1 }, said(view.question)),
    h("div", { class: "summary" }, summaryLine(view, row), h("p", { class: "warning gone", role: "status" }), h("div", { class: "how-much" })),
  ];
  if (view.error) {
    parts.push(h("p", { class: "verdict error" }, "This question has no tree: ", said(`${view.error.cause}. ${view.error.message}`)));
  } else if (view.no_pair) {
    parts.push(h("p", { class: "verdict warning" }, "No pair. ", said(view.no_pair)));
  }
  if (view.trees.length > 1) parts.push(treeTabs(view, row, chosenTree));
  const about = [questionFacts(view, row, chosenTree)];
  if (view.trees.length && !view.trees[chosenTree].error) {
    const frame = pannable(h("div", { class: "frame", tabindex: 0, role: "region", "aria-label": "The tree; arrow keys move through it" }));
    parts.push(legend(), h("div", { class: "drawing" }, frame), outsideTheTree(view.trees[chosenTree]));
    about.push(h("p", { class: "note" }, HOW), glossary());
  } else if (!view.trees.length && !view.error) {
    parts.push(h("p", { class: "note" }, "The tree is missing, so only the steps of its pairs are shown. Give the run directory with --trees to see it."));
  }
  parts.push(pairsSection(view), h("details", { class: "about" }, h("summary", {}, "About this question; keys; words"), about), rawJson(() => view));
  return parts;
}

/** Draws the tree again if something else is wanted. shown: what of it is unfolded, and how large it is. */
function redraw(view, tree, { pair, step }, shown, { again, open }) {
  const frame = stage.querySelector(".frame");
  if (!frame) return;
  const room = frame.clientWidth / shown.zoom;
  const opened = [...(pair ? [pair.chosen, pair.rejected] : []), ...(step ? [step.id] : [])];
  const steps = stepsToDraw(view.trees[tree].steps, rolesOf(view, tree), opened, shown.unfolded);
  const name = JSON.stringify([steps.map((each) => each.id), Math.round(room)]);
  if (frame.dataset.drawn !== name) {
    const had = frame.contains(document.activeElement) ? document.activeElement.dataset.step : null;
    const unfold = (id) => again({ unfolded: new Set([...shown.unfolded, id]) });
    frame.replaceChildren(drawTree(view, tree, { steps, room, open, unfold }));
    if (had) focusStep(frame.firstChild, had);
    frame.dataset.drawn = name;
  }
  const [svg] = frame.children;
  svg.setAttribute("width", svg.viewBox.baseVal.width * shown.zoom);
  svg.setAttribute("height", svg.viewBox.baseVal.height * shown.zoom);
  const button = (text, label, pressed, changes) =>
    h("button", { type: "button", "aria-label": label, "aria-pressed": pressed === null ? null : String(pressed), on: { click: () => again(changes) } }, text);
  const all = shown.unfolded === ALL;
  const whole = svg.querySelectorAll(".node").length === view.trees[tree].steps.length;
  stage.querySelector(".how-much").replaceChildren(...[
    whole && !all ? null : button("Pairs", "Pairs: draw their steps, and the ways to them", !all, { unfolded: new Set() }),
    whole && !all ? null : button("Whole tree", "Whole tree: draw all of it", all, { unfolded: ALL }),
    button("−", "− smaller", null, { zoom: Math.max(SMALLEST, shown.zoom / 1.2) }),
    button("+", "+ larger", null, { zoom: Math.min(3, shown.zoom * 1.2) }),
    button("Fit", "Fit: all of it, as far as it can still be read", null, { zoom: fitting(frame, shown.zoom) }),
  ].filter(Boolean));
  frame.parentElement.querySelector(".minimap")?.remove();
  frame.parentElement.append(...[minimap(frame)].filter(Boolean));
}

function treeTabs(view, row, chosen) {
  return h(
    "nav",
    { class: "tabs", "aria-label": "Trees of this question" },
    view.trees.map((tree, number) =>
      h("a", { href: questionLink(view.link, "tree", number), "aria-current": number === chosen ? "true" : null }, said(`${tree.source} (${tree.recipe.name}, seed ${tree.seed})`)),
    ),
  );
}

/** Unreadable replies that are no steps of the tree. */
function outsideTheTree(tree) {
  const failed = tree.failed_continuations.map((each) =>
    h("li", {}, `from step ${each.node_id}, depth ${each.layer}: `, said(`${each.parse_error.cause}: ${line(each.response, 300)}`)));
  const unread = tree.unreadable_judgements.map((each) => h("li", {}, `a judgement at step ${each.node_id}: `, said(line(each.response || each.cause || "", 300))));
  if (!failed.length && !unread.length) return null;
  return h("details", {}, h("summary", {}, `${plural(failed.length + unread.length, "unreadable reply", "unreadable replies")} outside the tree`), h("ul", {}, failed, unread));
}

// -- pairs ---------------------------------------------------------------------------------------------------

function pairsSection(view) {
  const layer = (pair) => view.states[pair.state].layer;
  const kept = view.pairs.filter((pair) => !pair.dropped).sort((a, b) => layer(a) - layer(b) || b.margin - a.margin);
  const reasons = d3.group(view.pairs.filter((pair) => pair.dropped), (pair) => pair.dropped);
  const dropped = [...reasons].sort(([, a], [, b]) => b.length - a.length);
  return h(
    "section",
    { class: "pairs" },
    h("h3", {}, `Pairs (${kept.length})`),
    kept.length ? pairTable(view, kept, "Pairs") : null,
    dropped.length ? h("h3", {}, `Dropped candidates (${view.pairs.length - kept.length})`) : null,
    dropped.map(([reason, pairs]) => {
      const details = h("details", { class: "reason" }, h("summary", {}, `${DROPPED[reason] ?? ""} (${count(pairs.length)}) `, h("span", { class: "faint" }, words(reason))));
      const fill = () => {
        if (details.open && details.children.length === 1) details.append(pairTable(view, pairs, `Dropped: ${words(reason)}`));
      };
      details.addEventListener("toggle", fill);
      details.open = sought.status === reason; // the reader came for it
      fill();
      return details;
    }),
  );
}

function pairTable(view, pairs, label) {
  const head = ["depth", "chosen", "rejected", "margin", "confidence"].map((name) => h("th", { scope: "col" }, name));
  const side = (pair, id, role, more = null) =>
    h("td", { "data-name": role }, h("span", { class: "type" }, `${typeOf(stepOf(view, pair, id))} `), said(line(pair.differ[Number(role === "rejected")], 90)), more);
  const rows = pairs.map((pair) => {
    const step = stepOf(view, pair, pair.chosen);
    return h(
      "tr",
      { "data-pair": pair.id },
      h("th", { scope: "row" }, h("a", { href: questionLink(view.link, "pair", pair.id), "aria-label": `Pair at depth ${view.states[pair.state].layer}: ${line(step.content ?? step.response, 60)}` }, view.states[pair.state].layer)),
      side(pair, pair.chosen, "chosen"),
      side(pair, pair.rejected, "rejected", pair.cautions.map((each) => h("div", { class: "warning" }, "⚠ ", said(each)))),
      h("td", { class: "digits", "data-name": "margin" }, number(pair.margin)),
      h("td", { class: "digits", "data-name": "confidence" }, number(pair.confidence)),
    );
  });
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "pair-table" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
}
