// What the address says: which view is shown, and what is searched, filtered and sorted by in it. All that a reader
// chooses is in it, so that a link, Back and a reload lead to the same rows. Knows nothing of what is shown.

const UNSOUGHT = {
  // of the list of questions
  find: "", ends: "", unreadable: "", order: "file",
  // of the table of pairs
  text: "", deep: "", status: "kept", type: "", depth: "", gold: "", review: "", confidence: "", margin: "", draws: "", length: "", chosen_length: "", rejected_length: "", reward: "", side: "", rows: "", sort: "", page: "",
  // of evaluations, beside text and type
  result: "", hops: "", by: "", em: "", judged: "", f1: "", gold_recall: "", searches: "", calls: "", tokens: "",
  // of judging
  who: "",
};
const sought = { ...UNSOUGHT };

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The route that an address names; what it says of choices is sought from then on. */
function routeNamed(address) {
  const [path, query = ""] = address.split("?", 2);
  const said = new URLSearchParams(query);
  for (const name of Object.keys(UNSOUGHT)) sought[name] = said.get(name) ?? UNSOUGHT[name];
  const [, kind, ...rest] = path.split("/").map(decoded);
  if (kind === "pairs" || kind === "judge") return { kind, path: [kind] };
  if (kind !== "q" || !rest.length) return { kind: "overview", path: [] };
  const [id, what, ...which] = rest;
  return { kind: "question", id, what, which, path: ["q", ...rest] };
}

/** The address of a view, with what is sought now and these changes. */
function link(path, changes = {}) {
  const query = new URLSearchParams();
  const here = path[0] === "judge" ? {} : { who: "" }; // a name belongs to judging alone
  for (const [name, value] of Object.entries({ ...sought, ...changes, ...here })) if (value !== UNSOUGHT[name]) query.set(name, value);
  return `#/${path.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

function questionLink(id, ...rest) {
  return link(["q", id, ...rest]);
}

/** The list of the questions that fit this alone, beside the first page. */
function questionsLink(wanted) {
  return link([], { find: "", ends: "", unreadable: "", ...wanted });
}

/** The table of the pairs that fit this alone. */
function pairsLink(wanted) {
  const { find, ends, unreadable, order } = sought;
  return link(["pairs"], { ...UNSOUGHT, find, ends, unreadable, order, ...wanted });
}

/** What is sorted by, and 1 for upwards or -1 for downwards. */
const sorting = () => [sought.sort.replace(/^-/u, ""), sought.sort.startsWith("-") ? -1 : 1];

/** A range as it is written, `0.3..0.8`, either end of which may be missing, `0.3..<0.8` without its end; as a test of
 * a value. */
function within(range) {
  const [low, high = low] = range.split("..");
  const [from, to] = [low === "" ? -Infinity : Number(low), high === "" ? Infinity : Number(high.replace("<", ""))];
  return (value) => value !== null && value >= from && (high.startsWith("<") ? value < to : value <= to);
}
