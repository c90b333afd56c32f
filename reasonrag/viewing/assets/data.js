// Where what is shown comes from: packed into this page, or asked of the server that gave it. Knows nothing of drawing.

/** A packed part of the page: gzip in base 64. */
async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const packedSource = {
  async list(show) {
    show({ ...(await unpacked(document.getElementById("list-data"))), complete: true, read: 1 });
  },
  async question(number) {
    if (document.readyState === "loading") await new Promise((done) => addEventListener("DOMContentLoaded", done)); // parts come after scripts
    const element = document.getElementById(`question-${number}`);
    return element ? unpacked(element) : null;
  },
};

const POLL_MS = 400;

const servedSource = {
  /** Shows what has been read so far, until everything is. */
  async list(show) {
    const rows = [];
    let pairs = {};
    for (let complete = false; !complete; ) {
      const part = await asked(`api/list?from=${rows.length}`);
      for (const row of part.rows) rows[row.number] = row;
      complete = part.complete;
      pairs = complete ? part.pairs : below(pairs, part.pairs);
      show({ ...part, pairs, rows: complete ? part.rows : rows });
      if (!complete) await new Promise((wait) => setTimeout(wait, POLL_MS + rows.length / 2)); // the more there is, the more an answer takes
    }
  },
  async question(number) {
    return asked(`api/question/${number}`);
  },
};

/** Columns with those of further rows below. */
function below(columns, more) {
  return Object.fromEntries(Object.entries(more).map(([name, values]) => [name, [...(columns[name] ?? []), ...values]]));
}

async function asked(path, options = {}) {
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? `${path}: status ${answer.status}`);
  return content;
}

const source = document.documentElement.dataset.mode === "served" ? servedSource : packedSource;
