// Judging pairs blind: one pair after another, one key a verdict. What was said is with the server after each one.

const VERDICTS = { a: "A is better", b: "B is better", tie: "as good", skip: "cannot say" };
const VERDICT_KEYS = { a: "a", b: "b", t: "tie", s: "skip" };
let judged = null; // who judges, the sample, the verdicts, and the order in which they came

async function showJudging() {
  if (!sought.who) {
    const name = h("input", { id: "judge-name", required: true, pattern: "[\\w\\-]{1,40}", autocomplete: "off" });
    stage.replaceChildren(h("h2", { tabindex: -1 }, "Judge blind"), h("form", { on: { submit: (event) => {
      event.preventDefault();
      location.hash = link(["judge"], { who: name.value });
    } } }, h("label", {}, "Your name (letters, digits, - and _): ", name), " ", h("button", {}, "Begin")),
      h("p", { class: "note" }, "Which step should the agent take? Labels and rewards are not shown. Each verdict is kept at once, in the data set's folder judgements, and reasonrag review --judgements reads it."), await agreementSection());
    return;
  }
  if (judged?.who !== sought.who) {
    const found = await asked(`api/judging?who=${encodeURIComponent(sought.who)}`);
    judged = { ...found, who: sought.who, order: Object.keys(found.verdicts), sent: {} };
  }
  await showNextPair();
}

async function showNextPair() {
  const left = judged.sample.filter((each) => !judged.verdicts[each.pair]);
  const done = judged.sample.length - left.length;
  const bar = h("progress", { max: judged.sample.length, value: done, "aria-label": "judged" });
  const head = [h("h2", { tabindex: -1 }, "Which step should the agent take?"), h("p", { role: "status", id: "judged" }, bar, ` ${count(done)} of ${count(judged.sample.length)} judged by `, said(judged.who))];
  const undo = h("button", { type: "button", disabled: !judged.order.length, on: { click: takeBack } }, "Undo (u)");
  if (!left.length) {
    await Promise.all(Object.values(judged.sent));
    stage.replaceChildren(...head, h("p", { class: "verdict passed" }, "All are judged."), undo, await agreementSection());
    return;
  }
  const [pair] = left;
  const side = (name) => h("section", { class: "side attempt" }, h("h3", {}, name.toUpperCase()), block(pair[name]));
  stage.replaceChildren(...head, block(pair.prompt), h("div", { class: "sides" }, side("a"), side("b")),
    h("div", { class: "tabs" }, Object.entries(VERDICTS).map(([name, text]) => h("button", { type: "button", "data-verdict": name, on: { click: () => judge(pair.pair, name) } }, `${text} (${name[0]})`)), undo));
}

/** Keeps a verdict, also if the page is left at once, and goes on; those on one pair are sent in their order. */
async function judge(pair, verdict) {
  const { [pair]: _, ...others } = judged.verdicts;
  judged.verdicts = verdict ? { ...others, [pair]: verdict } : others;
  judged.order = [...judged.order.filter((each) => each !== pair), ...(verdict ? [pair] : [])];
  const told = { method: "POST", keepalive: true, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ who: judged.who, pair, verdict }) };
  judged.sent[pair] = (judged.sent[pair] ?? Promise.resolve()).then(() => asked("api/judging", told)).catch((error) => {
    judged = null; // what is kept is asked for again
    stage.replaceChildren(h("p", { class: "verdict error" }, "A verdict was not kept: ", said(error.message), ". Load the page again."));
  });
  await showNextPair();
}

function takeBack() {
  return judged.order.length && judge(judged.order.at(-1), null);
}

/** Does what a key asks for; whether it asks for something. */
function judgingKey(key) {
  const button = stage.querySelector(`[data-verdict="${VERDICT_KEYS[key]}"]`);
  if (key === "u") takeBack();
  else button?.click();
  return key === "u" || button !== null;
}

/** How often each agrees with the labels and with the others; the way to the pairs on which they do not. */
async function agreementSection() {
  const { reviewers, between } = await asked("api/agreement");
  if (!reviewers.length) return "";
  const rowsOf = (found) => found.disagreements.map((each) => `${each.file.includes("validation") ? "validation" : "train"}:${each.row}`).join(",");
  return h("section", {}, h("h3", {}, "Agreement with the labels"),
    h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ["who", "judged", "ties", "skipped", "for the label, ties apart", "against it"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, reviewers.map((each) => h("tr", {}, h("th", { scope: "row" }, said(each.reviewer)), h("td", {}, count(each.judged)), h("td", {}, count(each.ties)), h("td", {}, count(each.skipped)), h("td", {}, wilson(each.agreement.confirmed)),
        h("td", {}, each.disagreements.length ? h("a", { href: pairsLink({ rows: rowsOf(each) }) }, plural(each.disagreements.length, "pair")) : "0"))))),
    between.map((each) => h("p", {}, said(`${each.one} and ${each.other}`), ` say the same of ${wilson(each.alike)} of ${plural(each.alike.of, "pair")}.`)),
    h("p", { class: "note" }, "Intervals: Wilson, 90 %."));
}
