// Where what is shown comes from: packed into this page, or asked of the server that gave it. Knows nothing of drawing.

/** A packed part of the page, which may be on its way still: gzip in base 64. Null: it is not in the page. */
async function unpacked(id) {
  const here = () => document.getElementById(id);
  if (!here() && document.readyState === "loading") await new Promise((read) => document.addEventListener("DOMContentLoaded", read, { once: true }));
  const element = here();
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const packedSource = {
  async list(show) {
    show({ ...(await unpacked("list-data")), complete: true, read: 1 });
  },
  pairs: () => unpacked("pairs"),
  question: (number) => unpacked(`question-${number}`),
};

const POLL_MS = 400;

const servedSource = {
  /** Shows what has been read so far, until everything is. */
  async list(show) {
    const rows = [];
    for (let complete = false; !complete; ) {
      const part = await asked(`api/list?from=${rows.length}`);
      for (const row of part.rows) rows[row.number] = row;
      complete = part.complete;
      show({ ...part, rows: complete ? part.rows : rows });
      if (!complete) await new Promise((wait) => setTimeout(wait, POLL_MS + rows.length / 2)); // the more there is, the more an answer takes
    }
  },
  pairs: () => asked("api/pairs"),
  question: (number) => asked(`api/question/${number}`),
};

async function asked(path, options = {}) {
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? `${path}: status ${answer.status}`);
  return content;
}

const source = document.documentElement.dataset.mode === "served" ? servedSource : packedSource;
