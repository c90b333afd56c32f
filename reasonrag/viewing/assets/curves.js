// Trainings over each other, rounds and critics, as far as their folders tell; what they do not tell is named. Puts
// scores into bins, and counts nothing else.

const TRAINED = ["rows of the training", "held-out rows"];
const SIDES = ["chosen replies", "rejected replies"];

/** Title, unit, what trainers call the values of the solid and of the dashed line, and what these are of. */
const CURVES = [
  ["Loss", "loss", ["loss"], ["eval_loss"], TRAINED],
  ["Pairs ranked as labelled", "share", ["rewards/accuracies", "accuracy"], ["eval_rewards/accuracies", "eval_accuracy"], TRAINED],
  ["Margin between the sides of a pair", "reward", ["rewards/margins", "margin"], ["eval_rewards/margins", "eval_margin"], TRAINED],
  ["Log-probability of replies", "nats", ["logps/chosen"], ["logps/rejected"], SIDES],
  ["Log-probability of held-out replies", "nats", ["eval_logps/chosen"], ["eval_logps/rejected"], SIDES],
];
const MOST_STEPS = 40; // in a table of numbers

const colorOf = (i) => Object.values(SERIES)[i] ?? `hsl(${(i * 137) % 360} 55% 50%)`; // of the training with this number
const wholeTick = (value) => (Number.isInteger(value) ? count(value) : "");

/** What is logged of one kind, step by step; null where nothing is. */
function curveFigure([title, unit, solid, dashed, of], trained) {
  const curves = trained.flatMap((each, i) => [solid, dashed].flatMap((names, k) => {
    const points = names.map((name) => each.series[name]).find((found) => found?.length);
    return points ? [{ each, points, stroke: colorOf(i), strokeDasharray: k ? "5 3" : null, name: `${line(each.name, 40)}, ${of[k]}` }] : [];
  }));
  if (!curves.length) return null;
  const without = trained.filter((each) => !curves.some((curve) => curve.each === each));
  const steps = [...new Set(curves.flatMap(({ points }) => points.map(([step]) => step)))].sort(d3.ascending);
  const shown = steps.filter((_, i) => i % Math.ceil(steps.length / MOST_STEPS) === 0 || i === steps.length - 1);
  const values = curves.map(({ points }) => new Map(points));
  const ends = curves.map(({ name, points }) => `${name} ${number(points[0][1])} to ${number(points.at(-1)[1])}`).join("; ");
  const which = curves.some((curve) => curve.strokeDasharray) ? `Solid: ${of[0]}; dashed: ${of[1]}.` : `Nothing is logged of ${of[1]}.`;
  return figure(title, `${which} From first to last: ${ends}.${without.length ? ` Not logged by ${without.map((each) => line(each.name, 40)).join(", ")}.` : ""}`,
    curves.flatMap(({ points, stroke, strokeDasharray }) => [
      Plot.line(points, { x: "0", y: "1", stroke, strokeDasharray, strokeWidth: 2 }),
      Plot.dot(points.slice(-1), { x: "0", y: "1", fill: stroke, r: 3 }),
    ]),
    [["step", ...curves.map(({ name }) => name)], shown.map((step) => [count(step), ...values.map((each) => number(each.get(step)))])],
    { x: { label: "step", tickFormat: wholeTick, ticks: 6 }, y: { label: unit, grid: true, domain: unit === "share" ? [0, 1] : undefined }, marginLeft: 56, series: Object.fromEntries(trained.filter((each) => !without.includes(each)).map((each) => [line(each.name, 40), colorOf(trained.indexOf(each))])) });
}

/** EM of the attempts that the model of each round drew. */
function roundsFigure(folders) {
  const points = folders.flatMap(({ name, rounds }, i) => rounds.filter((each) => each.em.of).map((each) => ({ ...each.em, round: each.round, name: line(name, 40), color: colorOf(i) })));
  const about = "Of the attempts at questions from which a round then learned. Of held-out questions nothing is recorded here: reasonrag evaluate measures a round's model, and reasonrag view shows evaluations beside each other.";
  if (!points.length) return h("figure", {}, h("h3", {}, "EM by round"), h("figcaption", {}, "Not recorded: no round is done, or its questions have no gold answers."));
  return figure("EM by round", `${about} Bars: 95 %, Wilson, as if all attempts at a question were one.`,
    [
      ...d3.group(points, ({ name }) => name).values().map((each) => Plot.line(each, { x: "round", y: "share", stroke: each[0].color, strokeWidth: 2 })),
      Plot.ruleX(points, { x: "round", y1: "low", y2: "high", stroke: "color", strokeWidth: 2 }),
      Plot.dot(points, { x: "round", y: "share", fill: "color", r: 4 }),
    ],
    [["round", "folder", "EM", "questions"], points.map((each) => [count(each.round), each.name, wilson(each), count(each.of)])],
    { x: { label: "round", tickFormat: wholeTick, inset: 12 }, y: { label: "EM", domain: [0, 1], grid: true }, color: { type: "identity" }, series: Object.fromEntries(points.map(({ name, color }) => [name, color])) });
}

function roundsTable({ name, rounds }) {
  const cells = (each) => [wilson(each.em), number(each.outcome), percent(each.unreadable, 1), percent(each.loops, 1), number(each.searches), number(each.tokens), number(each.entropy), number(each.distance)];
  return [h("h3", {}, said(name)), h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `Rounds of ${line(name, 40)}` },
    numbersTable(["round", "EM", "outcome", "unreadable", "loops", "searches", "tokens", "entropy", "distance"], rounds.map((each) => [count(each.round), ...cells(each)]))),
  rounds.filter((each) => each.stopped).map((each) => h("p", { class: "verdict warning" }, "stopped early: ", said(each.stopped)))];
}

/** Bins of the same edges, which are round and have 0 among them. */
function binned(groups) {
  const [low, high] = d3.extent(Object.values(groups).flat());
  const width = d3.tickStep(low, high, 24) || 1;
  const edges = d3.range(Math.floor(low / width), Math.floor(high / width) + 2).map((i) => Number((i * width).toPrecision(12)));
  const into = d3.bin().domain([edges[0], edges.at(-1)]).thresholds(edges.slice(1, -1));
  return Object.fromEntries(Object.entries(groups).map(([name, values]) => [name, { edges, counts: into(values).map((bin) => bin.length) }]));
}

/** How a critic ranks steps, and the scores that it gives. */
function criticFigures({ name, critic, scores }) {
  const who = line(name, 40);
  const shares = Object.entries(critic).map(([group, share]) => ({ ...share, group: line(group, 40) }));
  const distribution = (title, said, names, x, y) => {
    const groups = Object.fromEntries(names.map((each) => [each, scores[each] ?? []]));
    if (!Object.values(groups).every((values) => values.length)) return h("figure", {}, h("h3", {}, title), h("figcaption", {}, `The evaluation holds no scores of ${names.join(" and ")}.`));
    return histogramFigure(title, said, binned(groups), { gaps: "var(--one)", golden: "var(--one)", shuffled: "var(--two)", won: "var(--one)", lost: "var(--two)" }, { x, y });
  };
  const right = (scores.gaps ?? []).filter((gap) => gap > 0).length;
  return [
    figure(`${who}: ranked right`, "Share of held-out pairs whose truly better step scores higher; half is chance. The critic should be better than its baselines. Bars: 95 %, over questions; Wilson for fewer than 30.",
      [Plot.ruleX([0.5], { stroke: "var(--faint)", strokeDasharray: "3 3" }), Plot.ruleY(shares, { y: "group", x1: "low", x2: "high", stroke: "var(--three)", strokeWidth: 2 }), Plot.dot(shares, { y: "group", x: "share", fill: "var(--three)", r: 5 })],
      [["of", "ranked right", "cases"], shares.map((each) => [each.group, wilson(each), count(each.of)])],
      { marginLeft: 14 + 7 * d3.max(shares, (each) => each.group.length), height: 62 + 24 * shares.length, x: { label: "ranked right", domain: [0, 1], grid: true }, y: { label: null, domain: shares.map((each) => each.group) } }),
    distribution(`${who}: chosen less rejected`, `Score of the truly better step of a pair, less that of the other: ${count(right)} of ${plural(scores.gaps?.length ?? 0, "pair")} are above 0, and ranked right. Scores of different states cannot be compared.`, ["gaps"], "difference of scores", "pairs"),
    distribution(`${who}: golden and shuffled chains`, "Mean scores of the steps to a right answer, and of the same states with steps of another question. Where they are alike, the critic knows what a good step looks like, not whether it fits.", ["golden", "shuffled"], "mean score", "chains"),
    distribution(`${who}: won and lost chains`, "Mean scores of chains that ended right and wrong, less the mean of their question.", ["won", "lost"], "mean score", "chains"),
  ];
}

function curvesSection({ trainings, about }) {
  const logged = trainings.filter((each) => Object.keys(each.series).length);
  const folders = trainings.filter((each) => each.rounds.length);
  const critics = trainings.filter((each) => Object.keys(each.critic).length);
  const curves = CURVES.map((each) => [each[0], curveFigure(each, logged)]);
  const missing = curves.filter(([, drawn]) => !drawn).map(([title]) => title.toLowerCase());
  const note = (each, ...words) => h("p", { class: "note" }, said(each.name), ...words);
  return [
    h("h2", { tabindex: -1 }, plural(trainings.length, "training")),
    trainings.map((each) => [
      each.checkpoint ? note(each, " has not ended: its curves are those of ", said(each.checkpoint), ".") : null,
      each.stage === "critic" && !critics.includes(each) ? note(each, " is a critic that was not evaluated: ", h("code", {}, "reasonrag evaluate-critic CRITIC RUN"), " says how well it ranks steps, and its scores stand here then.") : null,
      [logged, folders, critics].some((of) => of.includes(each)) ? null : note(each, " has logged nothing yet."),
      each.warnings.map((text) => h("p", { class: "verdict warning" }, said(each.name), ": ", said(text))),
      each.remarks.map((text) => note(each, ": ", said(text))),
    ]),
    logged.length && missing.length ? h("p", { class: "note" }, `Not logged by any: ${missing.join(", ")}.`) : null,
    h("div", { class: "charts" }, folders.length ? roundsFigure(folders) : null, curves.map(([, drawn]) => drawn), critics.map(criticFigures)),
    folders.map(roundsTable),
    h("details", {}, h("summary", {}, "About this page"), about.map((text) => h("p", {}, visible(text)))),
  ];
}
