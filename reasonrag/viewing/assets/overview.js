// The first page: a run or a data set in numbers and charts, drawn by Observable Plot. Counts nothing itself.

const SERIES = { query: "var(--one)", evidence: "var(--two)", answer: "var(--three)", unreadable: "var(--four)" };

/** Text, as the way to what it counts where there is one. */
function way(text, to) {
  return to ? h("a", { href: to }, visible(text)) : visible(text);
}

/** A chart with a title, what it says in words, and its numbers as a table. Bars that lead somewhere are links and one
 * stop of Tab; arrows go from one to the next. */
function figure(title, summary, marks, [names, rows], { series, ...options } = {}) {
  const labelled = { style: { background: "transparent", color: "var(--ink)", fontSize: "12px", overflow: "visible" }, width: Math.min(460, Math.max(innerWidth - 58, 220 + (options.marginLeft ?? 48))), height: 250, marginLeft: 48, marginBottom: 42, ...options, marks };
  const chart = Plot.plot(labelled);
  for (const group of chart.querySelectorAll("[aria-label]")) group.removeAttribute("aria-label");
  const links = [...chart.querySelectorAll("a")];
  chart.setAttribute("role", links.length ? "group" : "img");
  chart.setAttribute("aria-label", `${title}. ${summary}`);
  for (const [i, bar] of links.entries()) {
    bar.setAttribute("tabindex", i ? -1 : 0);
    bar.addEventListener("keydown", (event) => {
      const next = links[i + { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key]];
      if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      bar.setAttribute("tabindex", -1);
      next.setAttribute("tabindex", 0);
      next.focus();
    });
  }
  return h(
    "figure",
    {},
    h("h3", {}, title),
    h("figcaption", {}, summary),
    series ? keyOf(series) : null,
    h("div", { class: "chart" }, chart),
    h("details", {}, h("summary", {}, "Numbers"), numbersTable(names, rows)),
  );
}

function keyOf(series) {
  return h("p", { class: "samples" }, Object.entries(series).map(([name, color]) => h("span", { class: "sample" }, h("span", { class: "swatch", "aria-hidden": "true", style: `background: ${color}` }), ` ${name}`)));
}

function numbersTable(names, rows) {
  return h(
    "table",
    { class: "numbers" },
    h("thead", {}, h("tr", {}, names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.map(([first, ...rest]) => h("tr", {}, h("th", { scope: "row" }, first), rest.map((value) => h("td", {}, value))))),
  );
}

/** Room around bars that leads where they do, as a small bar is hard to hit. */
const ROOM = { fillOpacity: 0, href: "to", title: "said" };

/** entries: a name, how many, and where that leads. */
function bars(title, summary, entries, names, color = "var(--one)") {
  const data = entries.map(([name, many, to]) => ({ name: line(words(name), 24), many, to, said: `${line(words(name))}: ${count(many)}` }));
  const longest = d3.max(data, (each) => each.name.length) ?? 0;
  const most = d3.max(data, (each) => each.many) || 1;
  return figure(
    title,
    summary,
    [Plot.barX(data, { y: "name", x: "many", fill: color }), Plot.text(data, { y: "name", x: "many", text: (each) => count(each.many), textAnchor: "start", dx: 4 }), Plot.barX(data, { y: "name", x1: 0, x2: most, ...ROOM }), Plot.ruleX([0])],
    [names, entries.map(([name, many, to]) => [way(words(name), to), count(many)])],
    { marginLeft: 14 + 7 * longest, marginRight: 56, height: 62 + 24 * data.length, x: { label: names[1], grid: true, nice: true }, y: { label: null, domain: data.map((each) => each.name) } },
  );
}

/** An edge of a bin: whole numbers as such. */
function edge(value) {
  return Number.isInteger(value) ? count(value) : number(value);
}

/** Several are drawn below each other. leads: where the bin of a range leads, of the series of a name. */
function histogramFigure(title, summary, histograms, colors, { x, y, leads = () => null }) {
  const series = Object.entries(histograms).filter(([, found]) => found);
  const names = series.map(([name]) => name);
  const { edges } = series[0][1];
  const bins = d3.pairs(edges).map(([low, high], i) => ({ low, high, i, text: `${edge(low)} to ${edge(high)}`, range: `${low}..${i + 2 < edges.length ? "<" : ""}${high}` }));
  const barOf = (bin, [name, { counts }]) => ({ ...bin, name, many: counts[bin.i], to: counts[bin.i] ? leads(bin.range, name) : null, said: `${names[1] ? `${name}, ` : ""}${bin.text}: ${count(counts[bin.i])}` });
  const rows = bins.map((bin) => series.map((each) => barOf(bin, each))).filter((row) => row.some(({ many }) => many));
  const data = rows.flat().filter(({ many }) => many);
  const place = { x1: "low", x2: "high", ...(names[1] ? { fy: "name" } : {}) };
  return figure(
    title,
    summary,
    [Plot.rectY(data, { ...place, y: "many", fill: ({ name }) => colors[name], insetLeft: 0.5, insetRight: 0.5 }), Plot.rectY(data, { ...place, y1: 0, y2: d3.max(data, ({ many }) => many), ...ROOM }), Plot.ruleY([0])],
    [[x, ...names], rows.map((row) => [row[0].text, ...row.map(({ many, to }) => way(count(many), to))])],
    { height: Math.max(250, 70 + 90 * names.length), marginRight: names[1] ? 72 : 20, x: { label: x, domain: [edges[0], edges.at(-1)] }, y: { label: y, grid: true, nice: true, ticks: names[1] ? 3 : 5 }, fy: { label: null, domain: names }, color: { type: "identity" } },
  );
}

function stacked(title, summary, byGroup, colors, { x, y, leads }) {
  const groups = Object.keys(byGroup);
  const present = Object.keys(colors).filter((name) => groups.some((group) => byGroup[group][name]));
  const barOf = (group, name) => ({ group, name, many: byGroup[group][name] ?? 0, to: leads(group, name), said: `${x} ${group}, ${name}: ${count(byGroup[group][name])}` });
  const data = groups.flatMap((group) => present.map((name) => barOf(group, name))).filter(({ many }) => many);
  return figure(
    title,
    summary,
    [Plot.barY(data, { x: "group", y: "many", fill: ({ name }) => colors[name], href: "to", title: "said" }), Plot.ruleY([0])],
    [[x, ...present], groups.map((group) => [way(group, leads(group)), ...present.map((name) => barOf(group, name)).map(({ many, to }) => way(count(many), many && to))])],
    { x: { label: x, domain: groups, type: "band" }, y: { label: y, grid: true, nice: true }, color: { type: "identity" }, series: Object.fromEntries(present.map((name) => [name, colors[name]])) },
  );
}

// -- trust ---------------------------------------------------------------------------------------------------

/** Claimed confidence against what fresh continuations confirm; a sentence where nothing was checked. */
function calibrationFigure(found) {
  if (!found) {
    return h("figure", {}, h("h3", {}, "Calibration"), h("figcaption", {}, "Not checked: whether 9 in 10 labels with a confidence of 0.9 are right is not known yet. ", h("code", {}, "reasonrag calibrate RUN"), " continues both sides of some pairs afresh, and the result stands here then."));
  }
  const named = (bin) => ({ ...bin, range: `${number(bin.low)} to ${number(bin.high)}`, to: pairsLink({ confidence: `${bin.low}..${bin.high < 1 ? "<" : ""}${bin.high}` }) });
  const bins = found.reliability.filter((bin) => bin.confirmed.of).map(named);
  const { confirmed, ties } = found.confirmed;
  return figure("Calibration", `Of ${plural(found.pairs, "checked pair")}, ${found.k} fresh continuations a side confirm ${wilson(confirmed)}; ${plural(ties, "tie")} apart. On the line, confidence is what it says; the bars are 90 % intervals. From ${found.source}.`,
    [
      Plot.line([[0.5, 0.5], [1, 1]], { stroke: "var(--faint)", strokeDasharray: "3 3" }),
      Plot.ruleX(bins, { x: "mean_confidence", y1: (bin) => bin.confirmed.low, y2: (bin) => bin.confirmed.high, stroke: "var(--three)", strokeWidth: 2 }),
      Plot.dot(bins, { x: "mean_confidence", y: (bin) => bin.confirmed.share, fill: "var(--three)", r: 5, href: "to", title: (bin) => `pairs with a confidence of ${bin.range}` }),
    ],
    [["confidence", "mean", "confirmed", "pairs"], bins.map((bin) => [way(bin.range, bin.to), number(bin.mean_confidence), wilson(bin.confirmed), count(bin.confirmed.of)])],
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
    [["questions", o.questions, questionsLink({})], ["with a tree", explored, questionsLink({ ends: "tree" })], ["mixed outcomes", o.ends.mixed ?? 0, questionsLink({ ends: "mixed" })], ["with a pair", o.questions_with_a_pair, questionsLink({ ends: "pair" })]], ["", "questions"]));
  const causes = Object.entries(o.failures_by_cause).map(([cause, many]) => [cause, many, questionsLink({ ends: "failed", find: cause })]);
  if (causes.length) found.push(bars("Failed questions", "By cause. Run the same command again to retry them.", causes, ["cause", "questions"], "var(--four)"));
  if (o.candidates) {
    const statuses = [["kept", o.pairs], ...Object.entries(o.dropped).sort((a, b) => b[1] - a[1])];
    found.push(bars("Candidates", `Any two steps of a state are a candidate. ${count(o.pairs)} of ${count(o.candidates)} are kept; each of the others is dropped for one reason.`,
      statuses.map(([status, many]) => [status, many, pairsLink({ status })]), ["status", "candidates"], "var(--two)"));
  }
  if (o.pairs) {
    found.push(stacked("Pairs by depth", "Depth of the state; colours are the action type of the chosen step.", o.pairs_by_layer, SERIES, { x: "depth", y: "pairs", leads: (depth, type = "") => pairsLink({ depth, type }) }));
  }
  const rewards = { query: o.histograms.reward_query, evidence: o.histograms.reward_evidence, answer: o.histograms.reward_answer };
  if (Object.values(rewards).some(Boolean)) {
    found.push(histogramFigure("Rewards of steps", "Labels compare these. If all are 0, or all equal, there is nothing to learn. A bar leads to the candidates that have such a step; not every step is in one.", rewards, SERIES, { x: "reward", y: "steps", leads: (reward, side) => pairsLink({ status: "all", reward, side }) }));
  }
  if (o.histograms.margin) {
    found.push(histogramFigure("Margin of pairs", `Reward of the chosen step minus that of the rejected one, scaled by depth if the recipe says so. Mean ${number(o.mean_margin)}.`, { pairs: o.histograms.margin }, { pairs: "var(--one)" }, { x: "margin", y: "pairs", leads: (margin) => pairsLink({ margin }) }));
  }
  if (o.histograms.confidence) {
    found.push(histogramFigure("Confidence of pairs", `Probability that the chosen step is truly better, given its continuations. Mean ${number(o.mean_confidence)}.`, { pairs: o.histograms.confidence }, { pairs: "var(--three)" }, { x: "confidence", y: "pairs", leads: (confidence) => pairsLink({ confidence }) }));
  }
  if (o.histograms.chosen) {
    found.push(histogramFigure("Length of replies", `In ${o.length_unit}. If one side is usually longer, the model learns length.`, { chosen: o.histograms.chosen, rejected: o.histograms.rejected }, { chosen: "var(--one)", rejected: "var(--two)" }, { x: o.length_unit, y: "pairs", leads: (range, side) => pairsLink({ [`${side}_length`]: range }) }));
  }
  const unread = Object.entries(trees?.parse_failures_by_cause ?? {}).map(([cause, many]) => [cause, many, questionsLink({ unreadable: "1", find: cause })]);
  if (unread.length) found.push(bars("Unreadable replies", `By cause. In addition, ${plural(trees.repair_turns, "repair turn")}.`, unread, ["cause", "replies"], "var(--four)"));
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
  const item = (...of) => h("li", {}, way(...of));
  const found = Object.entries(o.ends).map(([name, many]) => item(`${plural(many, "question")}: ${ENDS[name] ?? name}`, questionsLink({ ends: name })));
  const reasons = Object.entries(o.dropped).sort((a, b) => b[1] - a[1]);
  found.unshift(item(plural(o.pairs, "pair"), pairsLink({})), item("least confident pairs", pairsLink({ sort: "confidence" })));
  const against = d3.sum(Object.values(o.gold_agreement), (found) => found.wrong);
  if (against) found.splice(2, 0, item(`${plural(against, "pair")} against gold passages`, pairsLink({ gold: "wrong" })));
  if (o.questions > o.questions_with_a_pair) found.push(item(`${plural(o.questions - o.questions_with_a_pair, "question")} without a pair`, questionsLink({ ends: "none" })));
  if (o.doubtful) found.unshift(item(`⚠ ${plural(o.doubtful, "pair")} ${o.doubtful === 1 ? "needs" : "need"} review`, pairsLink({ review: "1" })));
  return h("div", {}, h("h3", {}, "Go to"), h("ul", { class: "ways" }, found, reasons.map(([name, many]) => item(`${count(many)} dropped: ${words(name)}`, pairsLink({ status: name }))),
    o.trees && Object.keys(o.trees.parse_failures_by_cause).length ? item("with unreadable replies", questionsLink({ unreadable: "1" })) : null));
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
    signs.length ? [h("h3", {}, "Degenerate trees"), numbersTable(["sign", "questions"], signs.map(([name, many]) => [visible(words(name)), count(many)]))] : null,
    h("details", {}, h("summary", {}, "Filters of these pairs"), numbersTable(["filter", "value"], Object.entries(o.rules).map(([name, value]) => [visible(words(name)), visible(value ?? "no limit")]))),
    rawJson(() => o),
    h("details", { open: !about.length ? null : true, "data-open": true }, h("summary", {}, "About this page"), about.map((text) => h("p", {}, visible(text))), glossary()),
  ];
}
