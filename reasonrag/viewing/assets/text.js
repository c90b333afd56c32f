// Words and numbers of the page, and the only way in which elements are made: text is always a text node, never markup.

/** Controls, marks of direction, halves of surrogate pairs, code points without a character and others that are invisible; joiners are left alone. */
const INVISIBLE = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Cn}\p{Zl}\p{Zp}]/gu;

/** Text of others with everything invisible named: U+202E as ⟨U+202E⟩. */
function visible(text) {
  return String(text ?? "").replace(INVISIBLE, (character) => {
    const code = character.codePointAt(0);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** The same on one line, at most so many characters. */
function line(text, most = Infinity) {
  const found = visible(text).replace(/\s+/gu, " ").trim();
  const letters = most === Infinity ? found : [...found.slice(0, 2 * most)];
  return letters.length > most ? `${letters.slice(0, most - 1).join("").trimEnd()}…` : found;
}

/** An element. Attributes that are null or false are left out; `on` holds listeners; children are nodes or text. */
function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(key, "");
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value);
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text of others: isolated, so that its direction turns nothing around it. */
function said(text, attributes = {}) {
  return h("bdi", attributes, visible(text));
}

/** What a search asks for: words, "several in a row", one|another, -those that must not occur, values as in f1<0.5. */
function wordsOf(text) {
  const words = (text.toLowerCase().match(/(?:"[^"]+"|[^\s"])+/gu) ?? []).map((word) => word.replaceAll('"', ""));
  return words.filter((word) => !/^-?\|*$/u.test(word));
}

const either = (word) => word.split("|").filter(Boolean);
const fits = (words, text, valuesOf = () => null) => words.every((word) => either(word.replace(/^-/u, "")).some((each) => holds(each, text, valuesOf)) !== word.startsWith("-"));

/** Whether a word occurs, or a value that it names is as it asks. */
function holds(word, text, valuesOf) {
  const [, name, sign, bound] = /^([a-z_\d]+)([<>]=?|=)(-?[\d.]+)$/u.exec(word) ?? [];
  return (name && valuesOf(name)?.some((value) => value !== null && sign.includes("<=>"[Math.sign(value - bound) + 1]))) ?? text.includes(word);
}

/** Marks the words of the search in texts of others; the first one is brought into sight. */
function markWords(element) {
  const words = wordsOf(sought.text).filter((word) => !word.startsWith("-")).flatMap(either).map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"));
  if (!words.length) return;
  const pattern = new RegExp(`(${words.join("|")})`, "giu");
  const texts = [...element.querySelectorAll("bdi, pre, pre > *")].flatMap((each) => [...each.childNodes]).filter((each) => each.nodeType === Node.TEXT_NODE);
  for (const text of texts) text.replaceWith(...text.data.split(pattern).map((part, i) => (i % 2 ? h("mark", {}, part) : part)));
  const first = element.querySelector("mark");
  for (let around = first?.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
  first?.scrollIntoView({ block: "nearest" });
}

/** Copies what it is asked for; says whether it did. */
function copyButton(text) {
  return h("button", { type: "button", class: "copy", on: { click: async ({ target }) => {
    const done = await navigator.clipboard.writeText(text()).then(() => true, () => false);
    target.textContent = done ? "copied" : "not allowed here";
  } } }, "copy");
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** So many digits, a tie to the even one, as the sentences beside are written; toFixed alone rounds ties up. */
function fixed(value, digits) {
  const text = value.toFixed(digits);
  const exact = Math.abs(value).toFixed(60); // every double that ends within 60 digits is exact here, so ties are too
  const rest = exact.slice(exact.indexOf(".") + 1 + digits);
  const even = Number(text.at(-1)) % 2 === 0;
  return even || !/^50*$/.test(rest) ? text : `${value < 0 ? "-" : ""}${exact.slice(0, exact.indexOf(".") + 1 + digits)}`;
}

/** Two digits; of those close to nothing or to 1 as many as tell them from it; a dash for what is not known. */
function number(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.01) return value.toPrecision(2);
  for (let digits = 2; digits < 7; digits++) if (Number(fixed(value, digits)) !== 1) return fixed(value, digits);
  return fixed(value, 2);
}

function count(value) {
  return value === null || value === undefined ? "–" : whole.format(value);
}

function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

function dollars(value) {
  if (value === null || value === undefined) return "–";
  return value > 0 && value < 0.1 ? `$${value.toPrecision(2)}` : `$${value.toFixed(2)}`;
}

function percent(part, of) {
  return of ? `${Math.round((100 * part) / of)} %` : "–";
}

const TYPES = {
  query: { name: "query", symbol: "symbolCircle" },
  evidence: { name: "evidence", symbol: "symbolSquare" },
  answer: { name: "answer", symbol: "symbolDiamond" },
  unreadable: { name: "unreadable", symbol: "symbolTimes" },
};

function typeOf(step) {
  return TYPES[step.type] ? step.type : "unreadable";
}

const ENDS = {
  mixed: "mixed outcomes",
  all_right: "all right",
  all_wrong: "all wrong",
  unknown: "unknown",
  failed: "failed",
};

const STATUSES = {
  answer: "answer: the path ends here",
  failed: "failed: the reply is unreadable, and the path ends here",
  repeated: "repeated: same content as an earlier sibling, whose estimate it shares",
  unexplored: "unexplored: never continued",
  settled: "converged: every continuation has the same outcome",
  mixed: "open: mixed outcomes, or a single continuation",
};

const DROPPED = {
  contaminated: "the question is in an evaluation split",
  held_out: "the question is kept for reinforcement",
  malformed: "one reply could not be parsed as a step",
  unvalued: "one side has no known reward",
  not_reached: "the published builder stops above this state",
  wrong_trajectory: "the trajectory ended in a wrong answer",
  not_ranked_apart: "the judge did not rank one first and the other third or later",
  same_content: "both steps have the same content",
  few_visits: "visited too rarely to be judged",
  not_picked: "the judge picked two other steps, or none",
  prompt_cut: "the endpoint seems to have cut the prompt",
  ungrounded: "no passage supports the chosen step",
  repeated_query: "the chosen query repeats an earlier one",
  small_margin: "the rewards are nearly equal",
  uncertain: "the confidence is too low",
  few_draws: "a step has too few continuations",
  same_findings: "both steps reveal the same, and their continuations do not tell them apart",
  no_consensus: "the values do not agree with the critics or the judge",
  golden_rejected: "the rejected answer equals a gold answer, and support does not explain it",
  near_identical: "both steps use nearly the same words",
  too_long: "too many tokens",
  duplicate: "the state has another pair with the same content",
  contradicted: "another pair prefers the opposite",
  state_full: "the state already has its maximum of pairs",
  efficiency_only_cap: "over the cap on pairs that differ in path length only",
  style_only_cap: "over the cap on answer pairs where both sides contain a gold answer, or neither does",
};

/** A key of the files as people read it: `small_margin` as `small margin`. */
function words(key) {
  return String(key).replaceAll("_", " ");
}
