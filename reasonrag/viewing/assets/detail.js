// One step, or one pair with both sides and why it was labelled so. Knows nothing of lists and drawings.

const SIGNS = { chosen: "✓ chosen", rejected: "✗ rejected" };

/** Everything about a step of a tree. */
function stepDetail(view, treeNumber, step) {
  if (step.parent === null) {
    return [h("h3", { tabindex: -1 }, "The question"), h("p", {}, said(view.question)), h("p", { class: "note" }, "The root of the tree is not a step: it has no prompt and no reply.")];
  }
  const type = typeOf(step);
  const pairs = view.pairs.filter((pair) => view.states[pair.state].tree === treeNumber && [pair.chosen, pair.rejected].includes(step.id));
  const kept = pairs.filter((pair) => !pair.dropped);
  return [
    h("h3", { tabindex: -1 }, `Step ${step.id}: ${type}`, h("span", { class: "faint" }, `, depth ${step.layer}, ${step.action} turn`)),
    h("p", { class: "content-of" }, step.content === null ? "The reply could not be parsed as a step." : said(step.content)),
    h("dl", { class: "facts-of" }, stepFacts(step)),
    step.parse_error ? parseError(step) : null,
    kept.length
      ? [h("h4", {}, "Pairs with this step"), h("ul", {}, kept.map((pair) => pairItem(view, pair, step)))]
      : h("p", { class: "note" }, pairs.length ? `Not in a pair: ${plural(pairs.length, "candidate")} dropped; the reasons are listed below the tree.` : "Not in a pair: it has no sibling to compare with."),
    step.ends.length ? endsTable(step) : null,
    h("h4", {}, "Reply"),
    block(step.response),
    step.reasoning ? h("details", {}, h("summary", {}, "Reasoning before this reply"), block(step.reasoning)) : null,
    step.passages ? passagesOf(view, step) : null,
    step.observation === null ? null : [h("h4", {}, "What the reader found in them, which the agent was shown instead"), block(step.observation || "nothing")],
    h("h4", {}, "Prompt"),
    promptOf(view, step),
    rawJson(() => ({ ...step, prompt: spelled(view, step) })),
  ];
}

function pairItem(view, pair, step) {
  const role = pair.chosen === step.id ? "chosen" : "rejected";
  const other = stepOf(view, pair, role === "chosen" ? pair.rejected : pair.chosen);
  const against = role === "chosen" ? "better than" : "worse than";
  return h("li", {}, h("a", { href: questionLink(view.link, "pair", pair.id) }, h("span", { class: role }, SIGNS[role]), `, ${against} `, said(line(other.content ?? other.response, 60)), ` (margin ${number(pair.margin)})`));
}

function stepFacts(step) {
  const yes = (value) => (value === null ? null : value ? "yes" : "no");
  const facts = [
    ["reward", number(step.reward)],
    ["expected outcome (undiscounted)", step.expected_outcome === null ? null : number(step.expected_outcome)],
    ["continuations", step.ends.length ? count(d3.sum(step.ends, (end) => end.times)) : null],
    ["not counted", step.uncounted || null],
    ["effective sample size", step.observations === null ? null : number(step.observations)],
    ["visits", count(step.visits)],
    ["value (guided the search)", step.visits ? number(step.value) : null],
    ["status", STATUSES[step.fate]],
    ["F1 / EM of the answer", step.type === "answer" && step.f1 !== null ? `${number(step.f1)} / ${number(step.em)}` : null],
    ["outcome", step.outcome && step.type === "answer" ? said(`${step.outcome.name} ${number(step.outcome.value)}`) : null],
    ["supported by reported evidence (decides the outcome)", yes(step.in_evidence)],
    ["supported by passages read so far", yes(step.grounded)],
    ["gold passages", step.gold === null ? null : step.type === "query" ? `finds ${step.gold} new` : `reports ${step.gold}`],
    ["sampled", step.draws > 1 ? `${step.draws} times, word for word` : null],
    ["sampled by", step.sampled_by === null ? null : said(step.sampled_by)],
    ["temperature", step.sampled_temperature],
    ["repaired", step.repaired ? "yes: the first reply could not be parsed" : null],
  ];
  const rules = Object.entries(step.rewards).filter(([, value]) => value !== null);
  if (rules.length > 1) facts.push(["rewards by rule", said(rules.map(([name, value]) => `${name} ${number(value)}`).join(", "))]);
  return facts.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => fact(name, value));
}

function parseError(step) {
  const { cause, detail, repair } = step.parse_error;
  return [
    h("p", { class: "verdict error" }, "Unreadable: ", said(detail ? `${cause}: ${detail}` : cause)),
    repair ? [h("h4", {}, "Reply to the repair turn"), block(repair)] : null,
  ];
}

/** The outcomes of the continuations. */
function endsTable(step) {
  const words = (end) => ({ failed: "failed: unreadable reply", "partly right": `partly right (${number(end.quality)})` })[end.came_to] ?? end.came_to;
  const golden = (end) => (end.quality === 0 && end.f1 === 1 ? ", although equal to a gold answer" : "");
  const rows = step.ends.map((end) => [words(end) + golden(end), end.steps, end.times]);
  return [
    h("h4", {}, step.type === "answer" ? "Outcome" : "Outcomes of its continuations"),
    h("table", { class: "numbers" },
      h("thead", {}, h("tr", {}, ["outcome", "steps", "continuations"].map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.map(([ended, steps, many]) => h("tr", {}, h("th", { scope: "row" }, ended), h("td", {}, steps), h("td", {}, many))))),
  ];
}

/** The answers that were given below a step, as far as they are steps of the tree: each with its number and outcome. */
function answersBelow(steps, id) {
  const below = new Set([id]);
  for (const step of steps) if (below.has(step.parent)) below.add(step.id);
  const given = steps.filter((step) => below.has(step.id) && step.type === "answer");
  const outcome = (step) => (step.f1 === 1 && step.outcome?.value === 0 ? UNSEEN : step.outcome?.value ?? step.f1);
  return d3.rollups(given, (all) => d3.sum(all, (step) => step.draws), (step) => line(step.content, 60), outcome)
    .flatMap(([answer, found]) => found.map(([value, times]) => ({ answer, times, value })))
    .sort((a, b) => b.times - a.times);
}

const MOST_ANSWERS = 6;
const UNSEEN = "gold answer, but not in evidence";

function answersLine(view, state, step) {
  const found = state.tree === null || step.type === "answer" ? [] : answersBelow(view.trees[state.tree].steps, step.id);
  if (!found.length && !step.uncounted) return null;
  const outcome = (value) => (value === UNSEEN ? value : value === null ? "not scored" : value >= 1 ? "right" : value <= 0 ? "wrong" : number(value));
  const shown = found.slice(0, MOST_ANSWERS).flatMap(({ answer, times, value }, i) => [i ? ", " : "", said(answer), ` ×${times} (${outcome(value)})`]);
  const given = found.length ? ["answers below it: ", shown, found.length > MOST_ANSWERS ? ", …" : ""] : [];
  const [many, counting] = [found, step.ends].map((all) => d3.sum(all, (each) => each.times));
  const right = d3.sum(step.ends, (end) => (end.came_to === "right" ? end.times : 0));
  if (step.uncounted && counting < many) given.push(`; ${count(counting)} of these ${count(many)} count, ${count(right)} of them right`);
  return h("p", { class: "answers" }, given, given.length && step.uncounted ? "; " : "", step.uncounted);
}

function block(text, shown = visible(text)) {
  return h("div", { class: "block" }, copyButton(() => text), h("pre", { dir: "auto", tabindex: 0 }, shown));
}

/** Something as the page has it, written out when it is opened. */
function rawJson(made) {
  return h("details", { on: { toggle: ({ target }) => {
    if (target.open && target.children.length === 1) target.append(block(JSON.stringify(made(), null, 1)));
  } } }, h("summary", {}, "Raw JSON"));
}

const passageLine = (each) => [each.gold ? h("strong", { class: "gold" }, "★ gold ") : null, said(line(each.title, 120)), h("span", { class: "faint" }, (each.score ?? null) === null ? "" : ` score ${number(each.score)}`)];

function passagesOf(view, step) {
  const user = step.user === null ? "" : view.texts[step.user];
  return [
    h("h4", {}, `Passages shown to the ${step.observation === null ? "agent" : "reader"} (${step.passages.length})`),
    h("ol", { class: "passages" }, step.passages.map((each) => {
      const text = each.start === null ? null : user.slice(each.start, each.end).trim();
      return h(
        "li",
        {},
        h("details", {},
          h("summary", {}, passageLine(each)),
          h("p", { class: "faint" }, "id ", said(each.id)),
          text === null ? h("p", {}, step.observation === null ? "Its text was not found in the prompt." : "Its text was shown to the reader alone.") : block(text)),
      );
    })),
  ];
}

function promptOf(view, step) {
  const turns = [["system", step.system], ...step.between.map((text, at) => [at % 2 ? "assistant" : "user", text]), ["user", step.user]].filter(([, text]) => text !== null);
  const other = (step.sampled_with ?? []).map((text) => block(view.texts[text]));
  return [
    turns.map(([role, text]) => [h("h5", {}, `${role} turn`), block(view.texts[text])]),
    other.length ? h("details", {}, h("summary", {}, "Prompt actually sent"), other) : null,
  ];
}

// -- a pair --------------------------------------------------------------------------------------------------

const TOPICS = {
  state: "State",
  chosen: "Chosen step",
  rejected: "Rejected step",
  label: "Label",
  confidence: "Confidence",
  checks: "Other checks",
  verdict: "Status",
};

/** Both sides of a pair, what they differ in, and why it was labelled as it was. */
function pairDetail(view, pair, calibration) {
  const [chosen, rejected] = [pair.chosen, pair.rejected].map((id) => stepOf(view, pair, id));
  const state = view.states[pair.state];
  const tied = ["value", "outcome"].includes(pair.label) && !pair.margin;
  return [
    walk(placeOf(view.number, pair.id)),
    h("h3", { tabindex: -1 }, "Pair", h("span", { class: "faint" }, ` of steps ${pair.chosen} and ${pair.rejected}, depth ${state.layer}, confidence ${number(pair.confidence)}, margin ${number(pair.margin)}`)),
    pair.dropped
      ? h("p", { class: "verdict warning" }, "Dropped: ", DROPPED[pair.dropped] ?? words(pair.dropped))
      : h("p", { class: "verdict passed" }, `Kept${pair.part ? `, ${pair.part === "train" ? "training" : pair.part} part` : ""}${pair.flipped ? ", sides exchanged on purpose" : ""}`),
    pair.cautions.map((text) => h("p", { class: "verdict warning" }, "Needs review: ", visible(text), ".")),
    h("p", {}, h("span", { class: "faint" }, "Question: "), said(line(view.question, 200)), h("br"), h("span", { class: "faint" }, "Gold answers: "), said(line(view.golden_answers.join(", ") || "none known", 200))),
    sides(view, state, chosen, rejected, tied),
    h("h4", {}, pair.dropped ? "Why it was dropped" : "Why this label"),
    h("dl", { class: "why" }, d3.groups(pair.why, (each) => each.topic).map(([topic, found]) => [h("dt", { class: Object.hasOwn(SIGNS, topic) ? topic : null }, TOPICS[topic]), found.map((each) => h("dd", {}, visible(each.text)))])),
    h("dl", { class: "facts-of" },
      fact("margin", number(pair.margin)),
      fact("confidence", [number(pair.confidence), h("span", { class: "faint" }, ` ${calibrated(pair.confidence, calibration)}`)]),
      fact("similarity of both sides", number(pair.similarity)),
      pair.tags.length ? fact("tags", pair.tags.map(words).join(", ")) : null,
      fact("labelled by", { value: "the rewards of both", judge: "a judge", outcome: "the outcomes of both trajectories", imported: "the imported file" }[pair.label] ?? "not labelled")),
    h("details", {}, h("summary", {}, "Glossary"), glossary()),
    h("h4", {}, "Shared prompt"),
    promptOf(view, chosen),
    rawJson(() => ({ ...pair, chosen, rejected, state, prompt: spelled(view, chosen) })),
  ];
}

/** The way to those beside this one in its table. */
function walk({ place, of, before, after, all = [["pairs"], "all pairs"] }) {
  const beside = (address, text) => (address ? h("a", { href: address }, text) : h("span", { class: "faint" }, text));
  return h("nav", { class: "walk", "aria-label": "Beside this one" }, beside(before, "‹ previous"),
    h("a", { href: link(all[0]) }, place < 0 ? all[1] : `${count(place + 1)} of ${count(of)}`), beside(after, "next ›"));
}

/** The prompt of a step as it was sent, turn by turn. */
function spelled(view, step) {
  return [step.system, ...step.between, step.user].map((text) => (text === null ? null : view.texts[text]));
}

const DIFF_MS = 300;

function sides(view, state, chosen, rejected, tied) {
  const names = tied ? { chosen: "one side", rejected: "other side" } : SIGNS;
  // what is too different to be compared in time is shown as it is
  const parts = Diff.diffWordsWithSpace(chosen.response ?? "", rejected.response ?? "", { timeout: DIFF_MS })
    ?? [{ value: chosen.response, removed: true }, { value: rejected.response, added: true }];
  const side = (role, step, marks) => {
    const pieces = parts.filter((part) => !part[marks === "added" ? "removed" : "added"])
      .map((part) => (part[marks] ? h(marks === "added" ? "ins" : "del", {}, visible(part.value)) : visible(part.value)));
    const title = state.tree === null ? `step ${step.id}` : h("a", { href: questionLink(view.link, "step", state.tree, step.id) }, `step ${step.id}`);
    return h(
      "section",
      { class: `side ${role}`, "aria-label": `${role} reply` },
      h("h4", {}, h("span", { class: role }, names[role]), ": ", title, h("span", { class: "faint" }, ` ${typeOf(step)}, reward ${number(step.reward)}`)),
      block(step.response ?? "", pieces),
      answersLine(view, state, step),
    );
  };
  return h("div", { class: "sides" }, side("chosen", chosen, "removed"), side("rejected", rejected, "added"));
}
