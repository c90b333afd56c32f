// Judging pairs blind: one pair after another, one key a verdict. What was said is with the server after each one.

const VERDICTS = { a: "A is better", b: "B is better", tie: "equally good", skip: "cannot say" };
const VERDICT_KEYS = { a: "a", b: "b", t: "tie", s: "skip" };
let judged = null; // who judges, the sample, the verdicts, and the order in which they came

/** Whether this is still what the reader looks at. */
function isJudging(who) {
  return state.route.kind === "judge" && sought.who === who;
}

async function showJudging() {
  const { who } = sought;
  if (!who) {
    const name = h("input", { id: "judge-name", required: true, pattern: "[\\p{L}\\p{N}_\\-]{1,40}", autocomplete: "off" });
    stage.replaceChildren(h("h2", { tabindex: -1 }, "Judge blind"), h("form", { on: { submit: (event) => {
      event.preventDefault();
      location.hash = link(["judge"], { who: name.value });
    } } }, h("label", {}, "Your name (letters, digits, - and _): ", name), " ", h("button", {}, "Begin")),
      h("p", { class: "note" }, "Which step should the agent take? Labels and rewards are not shown. Each verdict is kept at once, in the folder judgements of the data set, and reasonrag review --judgements reads it."));
    const agreement = await agreementSection();
    if (isJudging("")) stage.append(agreement);
    return;
  }
  if (judged?.who !== who) {
    const found = await asked(`api/judging?who=${encodeURIComponent(who)}`);
    if (!isJudging(who)) return;
    judged = { ...found, who, order: found.sample.map((each) => each.pair).filter((each) => found.verdicts[each]), sent: {} };
  }
  await showNextPair(judged);
}

async function showNextPair(of) {
  if (!isJudging(of.who)) return;
  const left = of.sample.filter((each) => !of.verdicts[each.pair]);
  const done = of.sample.length - left.length;
  const bar = h("progress", { max: of.sample.length, value: done, "aria-label": "judged" });
  const head = [h("h2", { tabindex: -1 }, "Which step should the agent take?"), h("p", { role: "status", id: "judged" }, bar, ` ${count(done)} of ${count(of.sample.length)} judged by `, said(of.who), " ", h("a", { href: link(["judge"], { who: "" }) }, "another person"))];
  const undo = h("button", { type: "button", "data-undo": true, disabled: !of.order.length, on: { click: () => of.order.length && judge(of, of.order.at(-1), null) } }, "Undo (u)");
  if (!left.length) {
    await Promise.all(Object.values(of.sent));
    const agreement = await agreementSection();
    if (isJudging(of.who) && judged === of) stage.replaceChildren(...head, h("p", { class: "verdict passed" }, "All are judged."), undo, agreement);
    return;
  }
  const [pair] = left;
  const side = (name) => h("section", { class: "side attempt" }, h("h3", {}, name.toUpperCase()), block(pair[name]));
  stage.replaceChildren(...head, block(pair.prompt), h("div", { class: "sides" }, side("a"), side("b")),
    h("div", { class: "tabs" }, Object.entries(VERDICTS).map(([name, text]) => h("button", { type: "button", "data-verdict": name, on: { click: () => judge(of, pair.pair, name) } }, `${text} (${name[0]})`)), undo));
}

/** Keeps a verdict, also if the page is left at once, and goes on; those on one pair are sent in their order. */
async function judge(of, pair, verdict) {
  const { [pair]: _, ...others } = of.verdicts;
  of.verdicts = verdict ? { ...others, [pair]: verdict } : others;
  of.order = [...of.order.filter((each) => each !== pair), ...(verdict ? [pair] : [])];
  const told = { method: "POST", keepalive: true, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ who: of.who, pair, verdict }) };
  of.sent[pair] = (of.sent[pair] ?? Promise.resolve()).then(() => asked("api/judging", told)).catch((error) => {
    if (judged === of) judged = null; // what is kept is asked for again
    if (isJudging(of.who)) stage.replaceChildren(h("p", { class: "verdict error" }, "A verdict was not kept: ", said(error.message), ". Load the page again."));
  });
  await showNextPair(of);
}

/** Does what a key asks for; whether it is a key of judging. */
function judgingKey(event) {
  const place = event.key === "u" ? "[data-undo]" : Object.hasOwn(VERDICT_KEYS, event.key) ? `[data-verdict="${VERDICT_KEYS[event.key]}"]` : null;
  if (place && !event.repeat) stage.querySelector(place)?.click();
  return place !== null;
}

/** How often each agrees with the labels and with the others; the way to the pairs on which they do not. */
async function agreementSection() {
  const found = await asked("api/agreement").catch((error) => error);
  if (found instanceof Error) return h("p", { class: "verdict warning" }, "The judgements cannot be compared: ", said(found.message));
  const { reviewers, between } = found;
  if (!reviewers.length) return "";
  const rowsOf = (of) => of.disagreements.map((each) => `${each.file.includes("validation") ? "validation" : "train"}:${each.row}`).join(",");
  const queueOf = (of) => (of.disagreements.length ? h("a", { href: pairsLink({ rows: rowsOf(of) }) }, plural(of.disagreements.length, "pair")) : "0");
  return h("section", {}, h("h3", {}, "Agreement with the labels"),
    h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ["who", "judged", "ties", "cannot say", "for the label, without ties", "against it"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, reviewers.map((each) => h("tr", {}, h("th", { scope: "row" }, said(each.reviewer)), h("td", {}, count(each.judged)), h("td", {}, count(each.ties)), h("td", {}, count(each.skipped)), h("td", {}, wilson(each.agreement.confirmed)),
        h("td", {}, queueOf(each)))))),
    between.map((each) => h("p", {}, said(`${each.one} and ${each.other}`), ` say the same of ${wilson(each.alike)} of ${plural(each.alike.of, "pair")}, and not of `, queueOf(each), ".")),
    h("p", { class: "note" }, "Intervals: Wilson, 90 %."));
}
