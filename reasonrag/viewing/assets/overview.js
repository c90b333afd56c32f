// The first page: a run or a data set in numbers and charts, drawn by Observable Plot. Counts nothing itself.

const SERIES = { query: "var(--one)", evidence: "var(--two)", answer: "var(--three)", unreadable: "var(--four)" };

function bins(histogram, more = {}) {
  return histogram.counts.map((many, i) => ({ from: histogram.edges[i], to: histogram.edges[i + 1], many, ...more }));
}

/** A chart with a title, what it says in words, and its numbers as a table. links: where each datum leads, and each row
 * of numbers, if those are others (rowLinks). */
function figure(title, summary, marks, table, options = {}) {
  const labelled = { style: { background: "transparent", color: "var(--ink)", fontSize: "12px", overflow: "visible" }, width: 460, height: 250, marginLeft: 48, marginBottom: 42, ...options, marks };
  const chart = Plot.plot(labelled);
  for (const group of chart.querySelectorAll("[aria-label]")) group.removeAttribute("aria-label");
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `${title}. ${summary}`);
  const wrapped = h("div", { class: "chart", tabindex: 0, role: "region", "aria-label": title }, chart);
  if (options.series) wrapped.prepend(keyOf(options.series));
  const [names, rows] = table;
  for (const mark of chart.querySelectorAll("rect")) {
    const to = options.links?.[mark.__data__]; // the number of its datum
    if (!to) continue;
    mark.classList.add("leads");
    mark.addEventListener("click", () => { location.hash = to; });
  }
  return h(
    "figure",
    {},
    h("h3", {}, title),
    h("figcaption", {}, summary),
    wrapped,
    h("details", {}, h("summary", {}, "Numbers"), numbersTable(names, rows, options.rowLinks ?? options.links)),
  );
}

function keyOf(series) {
  return h("p", { class: "samples" }, Object.entries(series).map(([name, color]) => h("span", { class: "sample" }, swatch(color), ` ${name}`)));
}

function swatch(color) {
  const element = h("span", { class: "swatch", "aria-hidden": "true" });
  element.style.background = color;
  return element;
}

/** links: of the rows that lead to what they count. */
function numbersTable(names, rows, links = []) {
  return h(
    "table",
    { class: "numbers" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([first, ...rest], i) => h("tr", {}, h("th", { scope: "row" }, links[i] ? h("a", { href: links[i] }, visible(first)) : visible(first)), rest.map((value) => h("td", {}, value))))),
  );
}

function bars(title, summary, entries, { color = "var(--one)", label = "", names, links }) {
  const data = entries.map(([name, many]) => ({ name: line(words(name), 24), many }));
  const longest = d3.max(data, (each) => each.name.length) ?? 0;
  return figure(
    title,
    summary,
    [Plot.barX(data, { y: "name", x: "many", fill: color }), Plot.text(data, { y: "name", x: "many", text: (each) => count(each.many), textAnchor: "start", dx: 4 }), Plot.ruleX([0])],
    [names, entries.map(([name, many]) => [words(name), count(many)])],
    { links, marginLeft: 14 + 7 * longest, marginRight: 56, marginBottom: 42, height: 62 + 24 * data.length, x: { label, grid: true, nice: true }, y: { label: null, domain: data.map((each) => each.name) } },
  );
}

/** An edge of a bin: whole numbers as such. */
function edge(value) {
  return Number.isInteger(value) ? count(value) : number(value);
}

function histogramFigure(title, summary, histograms, colors, { x, y, dashed = false, leads = null }) {
  const series = Object.entries(histograms).filter(([, found]) => found);
  const data = series.flatMap(([name, found]) => bins(found, { name }));
  const several = series.length > 1;
  const outline = ([name, found]) => found.edges.map((edge, i) => ({ at: edge, many: found.counts[Math.min(i, found.counts.length - 1)], name }));
  const marks = several
    ? series.map((one, i) => Plot.line(outline(one), { x: "at", y: "many", curve: "step-after", stroke: colors[one[0]], strokeWidth: 2, strokeDasharray: dashed && i ? "5 3" : null }))
    : [Plot.rectY(data, { x1: "from", x2: "to", y: "many", fill: Object.values(colors)[0], insetLeft: 0.5, insetRight: 0.5 })];
  const edges = series[0][1].edges;
  const bin = (i) => leads && pairsLink({ [leads]: `${edges[i]}..${i + 2 < edges.length ? "<" : ""}${edges[i + 1]}` });
  const filled = d3.range(edges.length - 1).filter((i) => series.some(([, found]) => found.counts[i]));
  const rows = filled
    .map((i) => [`${edge(edges[i])} to ${edge(edges[i + 1])}`, ...series.map(([, found]) => count(found.counts[i] ?? 0))]);
  return figure(title, summary, [...marks, Plot.ruleY([0])], [[x, ...series.map(([name]) => name)], rows], {
    x: { label: x },
    y: { label: y, grid: true, nice: true },
    series: several ? Object.fromEntries(series.map(([name]) => [name, colors[name]])) : null,
    links: several ? null : d3.range(edges.length - 1).map(bin),
    rowLinks: filled.map(bin),
  });
}

function stacked(title, summary, byGroup, colors, { x, y, leads }) {
  const groups = Object.keys(byGroup);
  const present = Object.keys(colors).filter((name) => groups.some((group) => byGroup[group][name]));
  const data = groups.flatMap((group) => present.map((name) => ({ group, name, many: byGroup[group][name] ?? 0 })));
  return figure(
    title,
    summary,
    [Plot.barY(data, { x: "group", y: "many", fill: (each) => colors[each.name], order: present }), Plot.ruleY([0])],
    [[x, ...present], groups.map((group) => [group, ...present.map((name) => count(byGroup[group][name] ?? 0))])],
    { x: { label: x, domain: groups, type: "band" }, y: { label: y, grid: true, nice: true }, color: { type: "identity" }, links: data.map(({ group, name }) => leads(group, name)), rowLinks: groups.map((group) => leads(group)), series: Object.fromEntries(present.map((name) => [name, colors[name]])) },
  );
}

// -- trust ---------------------------------------------------------------------------------------------------

/** Claimed confidence against what fresh continuations confirm; a sentence where nothing was checked. */
function calibrationFigure(found) {
  if (!found) {
    return h("figure", {}, h("h3", {}, "Calibration"), h("figcaption", {}, "Not checked: whether 9 in 10 labels with a confidence of 0.9 are right is not known yet. ", h("code", {}, "reasonrag calibrate RUN"), " continues both sides of some pairs afresh, and the result stands here then."));
  }
  const bins = found.reliability.filter((bin) => bin.confirmed.of);
  const { confirmed, ties } = found.confirmed;
  return figure("Calibration", `Of ${plural(found.pairs, "checked pair")}, ${found.k} fresh continuations a side confirm ${wilson(confirmed)}; ${plural(ties, "tie")} apart. On the line, confidence is what it says; the bars are 90 % intervals. From ${found.source}.`,
    [
      Plot.line([[0.5, 0.5], [1, 1]], { stroke: "var(--faint)", strokeDasharray: "3 3" }),
      Plot.ruleX(bins, { x: "mean_confidence", y1: (bin) => bin.confirmed.low, y2: (bin) => bin.confirmed.high, stroke: "var(--three)", strokeWidth: 2 }),
      Plot.dot(bins, { x: "mean_confidence", y: (bin) => bin.confirmed.share, fill: "var(--three)", r: 5 }),
    ],
    [["confidence", "mean", "confirmed", "pairs"], bins.map((bin) => [`${number(bin.low)} to ${number(bin.high)}`, number(bin.mean_confidence), wilson(bin.confirmed), count(bin.confirmed.of)])],
    { x: { label: "confidence", domain: [0.5, 1] }, y: { label: "confirmed", domain: [0, 1], grid: true } });
}

/** A share with its interval. */
function wilson({ share, low, high }) {
  return share === null ? "–" : `${percent(share, 1)} (${percent(low, 1)} to ${percent(high, 1)})`;
}

/** What is said of a confidence by pairs like it that were checked. */
function calibrated(confidence, found) {
  const bin = confidence !== null && found?.reliability.find((each) => confidence < each.high || each.high >= 1);
  if (!bin) return found ? "" : "(not checked by reasonrag calibrate)";
  return bin.confirmed.of ? `(of ${plural(bin.confirmed.of, "checked pair")} between ${number(bin.low)} and ${number(bin.high)}, ${wilson(bin.confirmed)} are right, ties apart)` : "(no pair of such a confidence was checked)";
}

/** How independent the pairs are, and whether evaluation questions are among them. */
function trustFacts(o) {
  const { effective, contamination } = o;
  const facts = [];
  if (effective?.by_state) facts.push(fact("effective sample size", `${count(effective.by_state)} by state, ${count(effective.by_question)} by question`));
  if (contamination?.checked) {
    const many = contamination.checked.length;
    facts.push(fact("decontamination", many ? `against ${plural(many, "split")}: ${plural(contamination.questions, "question")} found, ${count(contamination.dropped)} dropped, ${count(contamination.kept)} kept on purpose` : "not checked against any evaluation split"));
  }
  return facts;
}

// -- the page ------------------------------------------------------------------------------------------------

/** Charts of what there are numbers for. */
function chartsOf(o) {
  const found = [];
  const trees = o.trees;
  const explored = o.questions - (o.ends.failed ?? 0);
  found.push(bars("Yield", `${count(o.questions_with_a_pair)} of ${plural(o.questions, "question")} gave a pair; ${plural(o.pairs, "pair")} in all.`,
    [["questions", o.questions], ["with a tree", explored], ["mixed outcomes", o.ends.mixed ?? 0], ["with a pair", o.questions_with_a_pair]], { names: ["", "questions"], label: "questions", links: [questionsLink({}), null, questionsLink({ ends: "mixed" }), questionsLink({ ends: "pair" })] }));
  if (Object.keys(o.failures_by_cause).length) {
    found.push(bars("Failed questions", "By cause. Run the same command again to retry them.", Object.entries(o.failures_by_cause), { names: ["cause", "questions"], label: "questions", color: "var(--four)", links: Object.keys(o.failures_by_cause).map((cause) => questionsLink({ ends: "failed", find: cause })) }));
  }
  if (o.candidates) {
    const reasons = Object.entries(o.dropped).sort((a, b) => b[1] - a[1]);
    found.push(bars("Candidates", `Any two steps of a state are a candidate. ${count(o.pairs)} of ${count(o.candidates)} are kept; each of the others is dropped for one reason.`,
      [["kept", o.pairs], ...reasons], { names: ["status", "candidates"], label: "candidates", color: "var(--two)", links: ["kept", ...reasons.map(([name]) => name)].map((status) => pairsLink({ status })) }));
  }
  if (o.pairs) {
    found.push(stacked("Pairs by depth", "Depth of the state; colours are the action type of the chosen step.", o.pairs_by_layer, SERIES, { x: "depth", y: "pairs", leads: (depth, type = "") => pairsLink({ depth, type }) }));
  }
  const rewards = { query: o.histograms.reward_query, evidence: o.histograms.reward_evidence, answer: o.histograms.reward_answer };
  if (Object.values(rewards).some(Boolean)) {
    found.push(histogramFigure("Rewards of steps", "Labels compare these. If all are 0, or all equal, there is nothing to learn.", rewards, SERIES, { x: "reward", y: "steps" }));
  }
  if (o.histograms.margin) {
    found.push(histogramFigure("Margin of pairs", `Reward of the chosen step minus that of the rejected one, scaled by depth if the recipe says so. Mean ${number(o.mean_margin)}.`, { pairs: o.histograms.margin }, { pairs: "var(--one)" }, { x: "margin", y: "pairs", leads: "margin" }));
  }
  if (o.histograms.confidence) {
    found.push(histogramFigure("Confidence of pairs", `Probability that the chosen step is truly better, given its continuations. Mean ${number(o.mean_confidence)}.`, { pairs: o.histograms.confidence }, { pairs: "var(--three)" }, { x: "confidence", y: "pairs", leads: "confidence" }));
  }
  if (o.histograms.chosen) {
    found.push(histogramFigure("Length of replies", `In ${o.length_unit}. If one side is usually longer, the model learns length.`, { chosen: o.histograms.chosen, rejected: o.histograms.rejected }, { chosen: "var(--one)", rejected: "var(--two)" }, { x: o.length_unit, y: "pairs", dashed: true }));
  }
  if (trees && Object.keys(trees.parse_failures_by_cause).length) {
    found.push(bars("Unreadable replies", `By cause. In addition, ${plural(trees.repair_turns, "repair turn")}.`, Object.entries(trees.parse_failures_by_cause), { names: ["cause", "replies"], label: "replies", color: "var(--four)", links: Object.keys(trees.parse_failures_by_cause).map(() => questionsLink({ unreadable: "1" })) }));
  }
  return found;
}

function tile(name, value, about = "") {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, about ? h("span", { class: "faint" }, ` ${about}`) : null));
}

function tiles(o) {
  const cost = o.usage?.cost_usd;
  return h(
    "dl",
    { class: "tiles" },
    tile("questions", count(o.questions), o.ends.failed ? `${count(o.ends.failed)} failed` : ""),
    tile("with a pair", count(o.questions_with_a_pair), percent(o.questions_with_a_pair, o.questions)),
    tile("pairs", count(o.pairs), `of ${count(o.candidates)} candidates`),
    tile("mean confidence", number(o.mean_confidence)),
    o.usage ? tile("completions", count(o.usage.calls), o.pairs ? `${number(o.usage.calls / o.pairs)} per pair` : "") : null,
    o.usage ? tile("cost", dollars(cost), cost && o.pairs ? `${dollars(cost / o.pairs)} per pair` : "") : null,
    o.trees ? tile("mean F1 / EM", `${number(o.trees.mean_f1)} / ${number(o.trees.mean_em)}`, "of continuations") : null,
  );
}

/** Ways to what the numbers count. */
function ways(o) {
  const way = (text, address) => h("li", {}, h("a", { href: address }, text));
  const found = Object.entries(o.ends).map(([name, many]) => way(`${plural(many, "question")}: ${ENDS[name] ?? name}`, questionsLink({ ends: name })));
  const reasons = Object.entries(o.dropped).sort((a, b) => b[1] - a[1]);
  found.unshift(way(plural(o.pairs, "pair"), pairsLink({})), way("least confident pairs", pairsLink({ sort: "confidence" })));
  const against = d3.sum(Object.values(o.gold_agreement), (found) => found.wrong);
  if (against) found.splice(2, 0, way(`${plural(against, "pair")} against gold passages`, pairsLink({ gold: "wrong" })));
  if (o.questions > o.questions_with_a_pair) found.push(way(`${plural(o.questions - o.questions_with_a_pair, "question")} without a pair`, questionsLink({ ends: "none" })));
  if (o.doubtful) found.unshift(way(`⚠ ${plural(o.doubtful, "pair")} ${o.doubtful === 1 ? "needs" : "need"} review`, pairsLink({ review: "1" })));
  return h("div", {}, h("h3", {}, "Go to"), h("ul", { class: "ways" }, found, reasons.map(([name]) => way(`dropped: ${words(name)}`, pairsLink({ status: name }))),
    o.trees && Object.keys(o.trees.parse_failures_by_cause).length ? way("with unreadable replies", questionsLink({ unreadable: "1" })) : null));
}

function overviewSection(o, about) {
  const names = [["data", o.splits], ["recipe", o.recipes], ["reward", o.rewards], ["agent", o.agents ?? []], ["teacher", o.teachers]].filter(([, values]) => values.length);
  const signs = Object.entries(o.trees?.degenerate ?? {});
  return [
    h("h2", { tabindex: -1 }, `Overview of ${o.kind === "run" ? "a run" : "a data set"}`),
    h("dl", { class: "facts-of" }, names.map(([name, values]) => fact(name, said(values.join(", ")))), trustFacts(o), fact("path", said(o.path))),
    tiles(o),
    o.kind === "run" ? h("p", { class: "note" }, "The pairs are those that ", h("code", {}, "reasonrag pairs"), " makes of this run with its default filters, before decontamination, which drops questions of evaluation splits.") : null,
    o.warnings.map((text) => h("p", { class: "verdict warning" }, visible(text))),
    o.doubtful ? h("p", { class: "verdict warning" }, `${plural(o.doubtful, "kept pair")} ${o.doubtful === 1 ? "needs" : "need"} review: gold answers, gold passages or answers that were not counted speak against the label, or both steps reveal the same. Some labels are right all the same, as a lucky guess earns nothing.`) : null,
    ways(o),
    h("div", { class: "charts" }, chartsOf(o), o.pairs ? calibrationFigure(o.calibration) : null),
    signs.length ? [h("h3", {}, "Degenerate trees"), numbersTable(["sign", "questions"], signs.map(([name, many]) => [words(name), count(many)]))] : null,
    h("details", {}, h("summary", {}, "Filters of these pairs"), numbersTable(["filter", "value"], Object.entries(o.rules).map(([name, value]) => [words(name), String(value ?? "no limit")]))),
    rawJson(() => o),
    h("details", { open: !about.length ? null : true, "data-open": true }, h("summary", {}, "About this page"), about.map((text) => h("p", {}, visible(text))), glossary()),
  ];
}
