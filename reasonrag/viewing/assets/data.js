// Where what is shown comes from: packed into this page, or asked of the server that gave it. Knows nothing of drawing.

/** A packed part of the page, which may be on its way still: gzip in base 64. Null: it is not in the page. */
async function unpacked(id) {
  if (!document.getElementById(id) && document.readyState === "loading") await new Promise((read) => document.addEventListener("DOMContentLoaded", read));
  const element = document.getElementById(id);
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
const LIVE_MS = 1_500;
const IDLE_MS = 10_000;
let version = ""; // of what the server has read, as the page knows it

const servedSource = {
  /** Shows what has been read so far, and what is added later: soon where a run goes on, else seldom. */
  async list(show) {
    for (let many = 0; ; ) {
      const part = await asked("api/list").catch((error) => {
        if (!version) throw error;
        return { wrong: error.message };
      });
      version = part.version ?? version;
      many = part.rows?.length ?? many;
      show(part);
      const wait = part.complete === false ? POLL_MS : part.run?.state === "running" || part.kind === "folder" ? LIVE_MS : IDLE_MS;
      await new Promise((waited) => setTimeout(waited, wait + many / 2)); // the more there is, the more an answer takes
    }
  },
  pairs: () => asked("api/pairs"),
  question: (number) => asked(`api/question/${number}`),
};

/** An answer of the server, about the files that the page is of. */
async function asked(path, options = {}) {
  const of = version ? `${path.includes("?") ? "&" : "?"}of=${version}` : "";
  const answer = await fetch(path + of, options).catch(() => {
    throw new Error("the server does not answer; does reasonrag view go on?");
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error ?? `${path}: status ${answer.status}`);
  return content;
}

const source = document.documentElement.dataset.mode === "served" ? servedSource : packedSource;
